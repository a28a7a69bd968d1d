// The tape: one node for each recorded call, and what autograd keeps for a tensor.
//
// A node is owned by the results of its call and by the edges of later nodes. It saves the values
// that its gradient rule reads. A chain of nodes may be arbitrarily long, so it is freed in a loop
// and not by recursion.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include <brrr/dispatch/keys.h>
#include <brrr/dispatch/op_info.h>
#include <brrr/tensor/pool.h>
#include <brrr/tensor/tensor.h>

namespace brrr::autograd {

class Run;
struct TapeNode;
struct History;
class LeafGroup;

// Called with a gradient; a defined result replaces the gradient.
using Hook = std::function<Tensor(const Tensor& gradient)>;
struct Hooks {
  // Output numbers with their hooks. A deque, so that references stay valid when a hook adds hooks.
  std::deque<std::pair<int, Hook>> of_output;
  std::vector<std::pair<int, std::shared_ptr<Tensor>>> kept;  // destinations of retain_grad
};

// The target of an operand's gradient: an output of a node, a leaf, or none. Holds a reference to
// the target, which the owner of the edge must drop.
class Edge {
 public:
  Edge() = default;
  Edge(TapeNode* node, int output) : to_(reinterpret_cast<std::uintptr_t>(node)), output_(output) {}
  explicit Edge(TensorImpl* leaf) : to_(reinterpret_cast<std::uintptr_t>(leaf) | 1u) {}

  explicit operator bool() const { return to_ != 0; }
  bool to_leaf() const { return to_ & 1u; }
  TapeNode* node() const { return to_leaf() ? nullptr : reinterpret_cast<TapeNode*>(to_); }
  TensorImpl* leaf() const {
    return to_leaf() ? reinterpret_cast<TensorImpl*>(to_ & ~std::uintptr_t{1}) : nullptr;
  }
  int output() const { return output_; }

 private:
  std::uintptr_t to_ = 0;
  int output_ = 0;
};

// A value saved for the gradient. An output of the node itself is saved without its history, to
// avoid a reference cycle.
struct Saved {
  Tensor tensor;
  std::uint32_t version = 0;
};

// The gradient of a node's output or of a leaf during a backward: the sum of the terms so far.
using Slot = Tensor;

// The arrays of a node of more than three operands or more than one output.
struct TapeNodeRest {
  std::vector<Edge> edges;
  std::vector<Saved> operands, results;
  std::vector<Like*> likes;
  std::vector<Slot> slots;
};

// A checkpoint: a call without a row, which runs again when the gradients of its outputs are known.
struct Recomputed {
  std::vector<Saved> inputs;

  virtual ~Recomputed() = default;
  virtual const char* name() const = 0;
  virtual std::vector<Tensor> again() = 0;  // the outputs, recorded this time
  virtual void forget() = 0;                // releases everything but the name
};

struct TapeNode {
  static constexpr int kInline = 3;

  std::atomic<std::uint32_t> refs{1};
  std::uint8_t n_outputs = 1;
  bool ran = false;             // has run and released its saved values
  std::uint8_t n_operands = 0;  // 255: see rest
  std::uint64_t sequence = 0;   // unique, and above that of every node that its edges lead to
  std::atomic<Run*> run{nullptr};
  Slot slot;  // of output 0
  Edge edges[kInline];
  Like* likes[kInline] = {};  // pooled; null: same as the only output
  Saved operands[kInline];
  Saved result;
  std::unique_ptr<TapeNodeRest> rest;
  std::unique_ptr<Hooks> hooks;
  std::unique_ptr<Recomputed> recomputed;
  Call call;

  explicit TapeNode(Op op) : call(op, nullptr, 0) {}

  const char* name() const { return recomputed ? recomputed->name() : op_info(call.op).name; }
  int operand_count() const { return rest ? static_cast<int>(rest->edges.size()) : n_operands; }
  Edge& edge(int i) { return rest ? rest->edges[i] : edges[i]; }
  Saved& operand(int i) { return rest ? rest->operands[i] : operands[i]; }
  Saved& output(int i) { return i == 0 ? result : rest->results[i]; }
  Like*& like(int i) { return rest ? rest->likes[i] : likes[i]; }
  Slot& slot_of(int output) { return output == 0 ? slot : rest->slots[output]; }

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  void drop();
  // Releases the saved values and the edges.
  void forget();

  static void* operator new(std::size_t) { return Pool<TapeNode>::take(); }
  static void operator delete(void* memory) { Pool<TapeNode>::give(memory); }
};

// Whether a leaf's gradient is in use (unread.h).
enum class Reading : std::uint8_t { none, unread, read };
void mark_read(const History& history);

// Autograd's data of a tensor. A leaf has no node and accumulates a gradient.
struct History final : TensorExtension {
  TapeNode* node = nullptr;  // owned
  int output = 0;
  Tensor grad;
  std::shared_ptr<Tensor> retained;  // the gradient that retain_grad asked for
  std::unique_ptr<Hooks> hooks;      // of a leaf
  LeafGroup* group = nullptr;  // collects the leaf's gradient; `place`: the leaf's index in it
  int place = 0;
  mutable std::atomic<Reading> reading{Reading::none};
  std::atomic<Run*> run{nullptr};  // the backward that adds to `slot`
  Slot slot;

  ~History() override {
    if (reading.load(std::memory_order_relaxed) == Reading::unread) mark_read(*this);
    if (node) node->drop();
  }
  static void* operator new(std::size_t) { return Pool<History>::take(); }
  static void operator delete(void* memory) { Pool<History>::give(memory); }
};

inline History* history_of(const Tensor& x) {
  return static_cast<History*>(TensorImpl::of(x)->autograd);
}
// The history of x; made if there is none.
History& own_history(const Tensor& x);

// The Autograd key's one function: runs a call below, and records it as a node of the tape.
void record(Call& call, Tensor* outputs, std::uint32_t keys);

// Makes x an output of the node, and sets its Autograd key. Takes over a reference to the node.
void attach(const Tensor& x, TapeNode* node, int output);

// Makes x a constant.
void forget_history(const Tensor& x);

// A view of the same elements that is not on the tape.
Tensor without_history(const Tensor& x);

// A unique sequence number above that of every node recorded by this thread, and above `least`.
// The low bits of a sequence identify the thread, so that sequences are unique.
inline constexpr int kThreadBits = 16;
std::uint64_t next_sequence(std::uint64_t least);

}  // namespace brrr::autograd
