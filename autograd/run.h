// One backward over the tape. A heap orders nodes by sequence, so a node runs after all later nodes
// of the tape. Gradients are summed in slots of the nodes that they go to. A run claims the nodes
// that it reaches; for a node that another run has claimed it keeps the slots itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <brrr/autograd/tape_node.h>
#include <brrr/dispatch/keys.h>
#include <brrr/tensor/tensor.h>

namespace brrr::autograd {

// A tensor whose gradient the caller of `grad` requests.
struct Wanted {
  TapeNode* node = nullptr;    // of an output of a node
  TensorImpl* leaf = nullptr;  // or of a leaf
  int output = 0;
  Tensor gradient;
};

class Run {
 public:
  Run(bool create_graph, bool retain_graph);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Runs only the nodes on paths to `wanted`, and computes only the gradients of `wanted`.
  void restrict_to(std::span<Wanted> wanted, std::span<const Tensor> outputs);
  bool reaches(const Wanted& wanted) const;
  void seed(const Tensor& output, Tensor gradient);
  void go();
  // Adds the slots of leaves to their gradients and stores retained gradients: all or none.
  void commit();
  // Copies the slots of leaves to `wanted`.
  void collect();

 private:
  // The slots of a node that another run has claimed.
  struct Elsewhere {
    std::vector<Slot> slots;
  };
  // The result of `mark` for a node. Also identifies the node, since it may have been freed and
  // another one allocated at its address.
  struct Visit {
    std::uint64_t sequence;
    bool needed;
  };
  struct Leaf {
    TensorImpl* impl;  // owned
    Slot* slot;
  };

  // `given_away`, if any, passes its reference to the run and is cleared.
  Slot& slot_of(TapeNode* node, int output, Edge* given_away = nullptr);
  Slot& slot_of(TensorImpl* leaf);
  Tensor complete(const Leaf& leaf);
  void deliver(Edge& edge, Tensor gradient);
  void run(TapeNode* node);
  void run_rule(TapeNode* node, const Tensor* of_outputs);
  void run_again(TapeNode* node, const Tensor* of_outputs);
  void check_saved(TapeNode* node, const Saved& saved, const char* what, int which) const;
  void check_finite(TapeNode* node, const Tensor& gradient, int operand) const;
  bool needs(const Edge& edge);  // in a restricted run: whether the edge leads to a target
  bool mark(TapeNode* from);
  const bool* marked(TapeNode* node) const;
  void release(TapeNode* node);

  bool create_, retain_;
  bool restricted_ = false;
  std::span<Wanted> wanted_;
  std::unordered_set<const void*> targets_;     // the nodes and leaves of `wanted_`
  std::unordered_set<const void*> reached_;     // targets that the outputs depend on
  std::uint64_t earliest_ = ~std::uint64_t{0};  // the lowest sequence of a target; 0 for leaves
  std::vector<TapeNode*> heap_;                 // owned, as is `running_`
  TapeNode* running_ = nullptr;
  std::vector<Leaf> leaves_;
  std::unordered_map<TapeNode*, Elsewhere> elsewhere_;
  std::unordered_map<TensorImpl*, std::unique_ptr<Slot>> leaves_elsewhere_;
  std::unordered_map<TapeNode*, Visit> needed_;  // whether a target depends on the node
  std::vector<std::pair<std::shared_ptr<Tensor>, Tensor>>
      kept_;  // of retain_grad: destination and gradient
};

// Whether shape, dtype and device agree, and the gradient has values if `like` has.
bool alike(const Tensor& gradient, const Tensor& like);
std::string described(const Tensor& x);  // for errors of these

}  // namespace brrr::autograd
