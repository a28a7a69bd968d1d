// The Autograd key's one function: runs a call below, and puts a node for it on the tape.
#include <fmt/format.h>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/node.h"
#include "brrr/dispatch/dispatch.h"
#include "brrr/tensor/error.h"

namespace brrr::autograd {
namespace {

// Set while checkpoint runs its function for the first time: nothing is recorded, and this learns
// whether anything would have been.
thread_local bool* noticed = nullptr;

bool needs_gradient(const Tensor& x) { return x.impl()->word.keys() & bit(Key::autograd); }

Edge edge_to(const Tensor& x) {
  if (!needs_gradient(x)) return {};
  const History& history = *history_of(x);
  if (Node* node = history.node) {
    node->retain();
    return Edge(node, history.output);
  }
  x.impl()->retain();
  return Edge(x.impl());
}

std::uint64_t sequence_of(const Edge& edge) { return edge.node() ? edge.node()->sequence : 0; }

bool same_form(const Tensor& x, const Tensor& like) {
  if (x.dtype() != like.dtype() || x.rank() != like.rank()) return false;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.impl()->dims[i] != like.impl()->dims[i]) return false;
  }
  return true;
}

bool is_column_major(const Tensor& x) {
  const int rank = x.rank();
  return rank >= 2 && !x.is_contiguous() && x.impl()->strides[rank - 2] == 1;
}

Like* pooled_like(const Tensor& x) {
  return new (Pool<Like>::take()) Like{x.dtype(), x.device(), Dims(x.shape()), is_column_major(x)};
}

void save(Saved& saved, const Tensor& x) {
  saved.tensor = x;
  saved.version = x.version();
}

// Operands are the inputs with the numbers among them.
int operand_count(const Call& call) {
  const unsigned s = call.scalars;
  return static_cast<int>(call.n_inputs + (s & 1) + (s >> 1 & 1) + (s >> 2 & 1));
}

void make_rest(Node& node, int operands, const OpInfo& info) {
  node.rest = std::make_unique<NodeRest>();
  node.rest->edges.resize(static_cast<std::size_t>(operands));
  node.rest->operands.resize(static_cast<std::size_t>(operands));
  node.rest->likes.resize(static_cast<std::size_t>(operands));
  node.rest->results.resize(info.n_outputs);
  node.rest->slots.resize(info.n_outputs);
}

// Writing into memory that another tensor sees would change values that the tape knows nothing of.
void check_in_place(const Call& call, const OpInfo& info, const Tensor& x) {
  if (needs_gradient(x) && !history_of(x)->node) {
    fail(
        fmt::format("[{}_] expected a tensor that does not collect a gradient itself, got the leaf "
                    "{}; write into it under no_grad",
                    info.name, x.describe()));
  }
  if (x.impl()->storage && x.impl()->storage->refs.load(std::memory_order_relaxed) > 1) {
    fail(
        fmt::format("[{}_] expected a tensor that shares its memory with no other while gradients "
                    "are recorded, got {}; use {}, or write under no_grad",
                    info.name, x.describe(), info.name));
  }
  // The first operand of a pointwise call is the tensor itself, and others may be.
  CallValues overwritten = 0, read = 0;
  for (int i = 0, n = operand_count(call), input = 0; i < n; ++i) {
    if (call.is_scalar(i)) continue;
    const Tensor& operand = *call.inputs[input++];
    if (operand.impl() == x.impl()) overwritten |= operand_bit(i);
    if (needs_gradient(operand) && info.gradient.has_gradient(i))
      read |= info.gradient.needs_for(i);
  }
  if (read & overwritten) {
    fail(
        fmt::format("[{}_] expected not to overwrite a value that a gradient is computed from, got "
                    "{}; use {}",
                    info.name, x.describe(), info.name));
  }
}

// Puts the call on the tape.
void put_down(const Call& call, const OpInfo& info, Tensor* outputs) {
  const GradientRule& rule = info.gradient;
  struct Owned {
    Node* node;
    ~Owned() {
      if (node) node->drop();
    }
  } owned{new Node(call.op)};
  Node* const node = owned.node;
  const int n = operand_count(call);
  node->n_outputs = info.n_outputs;
  if (n > Node::kInline || info.n_outputs > 1) {
    make_rest(*node, n, info);
  } else {
    node->n_operands = static_cast<std::uint8_t>(n);
  }
  node->call.n_attrs = call.n_attrs;
  node->call.scalars = call.scalars;
  node->call.dtype = call.dtype;
  node->call.in_place = call.in_place;
  node->call.device = call.device;
  for (int i = 0; i < call.n_attrs; ++i) node->call.attrs[i] = call.attrs[i];

  const bool pointwise = info.kind == OpKind::pointwise;
  std::uint64_t latest = 0;
  CallValues needed = 0;
  bool any = false;
  for (int i = 0, input = 0; i < n; ++i) {
    if (call.is_scalar(i)) continue;
    const Tensor& x = *call.inputs[input++];
    // Ops without a rule are recorded too: that they have none is said when a gradient arrives.
    const Edge edge = !rule.run || rule.has_gradient(i) ? edge_to(x) : Edge();
    if (edge) {
      any = true;
      needed |= rule.needs_for(i);
      latest = std::max(latest, sequence_of(edge));
      node->edge(i) = edge;
    }
    // A broadcast operand's gradient is summed to its shape; other rules may ask for any form, and
    // of several outputs the first may have no gradient.
    if (pointwise ? edge && !same_form(x, outputs[0])
                  : info.n_outputs > 1 || !same_form(x, outputs[0]) || is_column_major(x)) {
      node->like(i) = pooled_like(x);
    }
  }
  if (!any) {  // overwritten by a constant
    if (call.in_place) forget_history(outputs[0]);
    return;
  }
  for (int i = 0, input = 0; i < n; ++i) {
    if (call.is_scalar(i)) continue;
    const Tensor& x = *call.inputs[input++];
    if (needed & operand_bit(i)) save(node->operand(i), x);
  }
  node->sequence = next_sequence(latest);
  for (int i = 0; i < info.n_outputs; ++i) {
    if (needed & result_bit(i)) save(node->output(i), without_history(outputs[i]));
  }
  // The first output takes over the reference that is held here.
  owned.node = nullptr;
  bool taken = false;
  for (int i = 0; i < info.n_outputs; ++i) {
    if (!is_floating(outputs[i].dtype())) continue;
    if (std::exchange(taken, true)) node->retain();
    attach(outputs[i], node, i);
  }
}

}  // namespace

void record(Call& call, Tensor* outputs, std::uint32_t keys) {
  const OpInfo& info = op_info(call.op);
  if (call.in_place) [[unlikely]]
    for (int i = 0; i < info.n_outputs; ++i) check_in_place(call, info, outputs[i]);
  {
    const ExcludeKeys below(bit(Key::autograd));
    dispatch_below(Key::autograd, call, outputs, keys);
  }
  if (noticed) [[unlikely]] {
    *noticed = true;
    return;
  }
  bool floating = false;
  for (int i = 0; i < info.n_outputs; ++i) floating |= is_floating(outputs[i].dtype());
  const bool constant = info.gradient.run && !info.gradient.differentiable;
  if (floating && !constant) {
    put_down(call, info, outputs);
  } else if (call.in_place) {
    for (int i = 0; i < info.n_outputs; ++i) forget_history(outputs[i]);
  }
}

Noticing::Noticing(bool& any) : before_(std::exchange(noticed, &any)) {}
Noticing::~Noticing() { noticed = before_; }

}  // namespace brrr::autograd
