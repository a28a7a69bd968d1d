#include "brrr/autograd/tape_node.h"

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/functions.h"

namespace brrr::autograd {

// Nodes without owners, which the loop in `free_chain` frees. Freeing a node appends the nodes that
// its edges lead to, in place of recursion.
struct DoomedNodes {
  std::vector<TapeNode*> nodes;
};

namespace {

void drop_edge(Edge& edge) {
  const Edge gone = std::exchange(edge, Edge());
  if (TensorImpl* leaf = gone.leaf()) {
    leaf->drop();
  } else if (TapeNode* node = gone.node()) {
    node->drop();
  }
}

void destroy(TapeNode* node) {
  if (!node->ran) node->forget();
  delete node;
}

[[gnu::noinline]] void free_chain(TapeNode* node) {
  DoomedNodes own;
  const ContextScope<&ThreadContext::doomed_nodes> collecting(&own);
  destroy(node);
  while (!own.nodes.empty()) {
    TapeNode* next = own.nodes.back();
    own.nodes.pop_back();
    destroy(next);
  }
}

}  // namespace

void TapeNode::drop() {
  if (refs.load(std::memory_order_acquire) != 1 &&
      refs.fetch_sub(1, std::memory_order_acq_rel) != 1)
    return;
  if (ran) {  // its edges have been dropped
    delete this;
  } else if (thread_context.doomed_nodes) {
    thread_context.doomed_nodes->nodes.push_back(this);
  } else {
    free_chain(this);
  }
}

void TapeNode::forget() {
  const auto forget_operand = [](Edge& edge, Saved& saved, Like*& like) {
    drop_edge(edge);
    saved.tensor = Tensor();
    if (Like* gone = std::exchange(like, nullptr)) Pool<Like>::give(gone);
  };
  if (!rest) [[likely]] {
    for (int i = 0; i < n_operands; ++i) forget_operand(edges[i], operands[i], likes[i]);
    result.tensor = Tensor();
    return;
  }
  for (std::size_t i = 0; i < rest->edges.size(); ++i)
    forget_operand(rest->edges[i], rest->operands[i], rest->likes[i]);
  for (Saved& each : rest->results) each.tensor = Tensor();
  result.tensor = Tensor();
  if (recomputed) recomputed->forget();
}

History& own_history(const Tensor& x) {
  TensorImpl& impl = *TensorImpl::of(x);
  if (!impl.autograd) impl.autograd = new History;
  return *static_cast<History*>(impl.autograd);
}

void attach(const Tensor& x, TapeNode* node, int output) {
  TensorImpl& impl = *TensorImpl::of(x);
  History& history = own_history(x);
  if (history.retained) [[unlikely]] {  // from now on retain_grad is about the new value
    history.retained = std::make_shared<Tensor>();
    if (!node->hooks) node->hooks = std::make_unique<Hooks>();
    node->hooks->kept.emplace_back(output, history.retained);
  }
  if (TapeNode* before = std::exchange(history.node, node)) before->drop();
  history.output = output;
  impl.add_keys(bit(Key::autograd));
}

void forget_history(const Tensor& x) {
  TensorImpl& impl = *TensorImpl::of(x);
  impl.remove_keys(bit(Key::autograd));
  History* history = history_of(x);
  if (!history) return;
  // Edges may still lead here from the time when the tensor was a leaf.
  if (TapeNode* before = std::exchange(history->node, nullptr)) before->drop();
  history->retained.reset();
}

Tensor without_history(const Tensor& x) {
  const ExcludeKeys unrecorded(bit(Key::autograd));
  if (x.is_contiguous()) return view(x, Dims(x.shape()));
  Dims order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i);
  return permute(x, order);
}

std::uint64_t next_sequence(std::uint64_t least) {
  constexpr std::uint64_t kThread = (std::uint64_t{1} << kThreadBits) - 1;
  static std::atomic<std::uint64_t> threads{0};
  std::uint64_t& last = thread_context.last_sequence;
  if (last == 0) [[unlikely]]
    last = 1 + threads.fetch_add(1, std::memory_order_relaxed) % kThread;
  last = (((last > least ? last : least) >> kThreadBits) + 1) << kThreadBits | (last & kThread);
  return last;
}

}  // namespace brrr::autograd
