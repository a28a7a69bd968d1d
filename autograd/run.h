// A walk over the tape. Nodes wait in a heap by sequence, so each runs after all that come after it
// on the tape; a gradient on its way lies in a slot of the node that it goes to. A run claims the
// nodes that it meets; where another run has a node already, the slots are kept in the run instead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <brrr/autograd/node.h>
#include <brrr/dispatch/keys.h>
#include <brrr/tensor/tensor.h>

namespace brrr::autograd {

// What the caller of `grad` asked for.
struct Wanted {
  Node* node = nullptr;        // of an output of a node
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

  // Only what `wanted` depends on is run, and only `wanted` gets gradients.
  void restrict_to(std::span<Wanted> wanted, std::span<const Tensor> outputs);
  bool reaches(const Wanted& wanted) const;
  void seed(const Tensor& output, Tensor gradient);
  void go();
  // Adds what leaves have got to their gradients, and keeps those of inner values, all or none.
  void commit();
  // Gives what leaves have got to those who want it.
  void collect();

 private:
  struct Elsewhere {
    std::vector<Slot> slots;
  };
  // Of a node that may have gone since: another may stand in its place in memory.
  struct Mark {
    std::uint64_t sequence;
    bool needed;
  };
  struct Leaf {
    TensorImpl* impl;  // owned
    Slot* slot;
  };

  // An edge that is given away passes its reference to the run, and leads nowhere when it has.
  Slot& slot_of(Node* node, int output, Edge* given_away = nullptr);
  Slot& slot_of(TensorImpl* leaf);
  Tensor complete(const Leaf& leaf);
  void deliver(Edge& edge, Tensor gradient);
  void run(Node* node);
  void run_rule(Node* node, const Tensor* of_outputs);
  void run_again(Node* node, const Tensor* of_outputs);
  void check_saved(Node* node, const Saved& saved, const char* what, int which) const;
  void check_finite(Node* node, const Tensor& gradient, int operand) const;
  bool needs(const Edge& edge);  // whether a restricted run does
  bool mark(Node* from);
  const bool* marked(Node* node) const;
  void release(Node* node);

  bool create_, retain_;
  bool restricted_ = false;
  std::span<Wanted> wanted_;
  std::unordered_set<const void*> targets_;     // the nodes and leaves that are wanted
  std::unordered_set<const void*> reached_;     // those of them that the outputs depend on
  std::uint64_t earliest_ = ~std::uint64_t{0};  // sequence among them; a leaf has none
  std::vector<Node*> heap_;                     // each owned, as is:
  Node* running_ = nullptr;
  std::vector<Leaf> leaves_;
  std::unordered_map<Node*, Elsewhere> elsewhere_;
  std::unordered_map<TensorImpl*, std::unique_ptr<Slot>> leaves_elsewhere_;
  std::unordered_map<Node*, Mark> needed_;  // whether a restricted run needs it
  std::vector<std::pair<std::shared_ptr<Tensor>, Tensor>> kept_;  // where to, and what
};

// Of one shape, dtype and device; what has values wants values.
bool alike(const Tensor& gradient, const Tensor& like);
std::string described(const Tensor& x);  // for errors of these

}  // namespace brrr::autograd
