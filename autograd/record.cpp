// The Autograd key's one function: runs a call below, and records it as a node of the tape.

#include <algorithm>
#include <memory>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/tape_node.h"
#include "brrr/dispatch/dispatch.h"
#include "brrr/tensor/fail.h"

namespace brrr::autograd {
namespace {

bool needs_gradient(const Tensor& x) { return TensorImpl::of(x)->word.keys() & bit(Key::autograd); }

Edge edge_to(const Tensor& x) {
  if (!needs_gradient(x)) return {};
  const History& history = *history_of(x);
  if (TapeNode* node = history.node) {
    node->retain();
    return Edge(node, history.output);
  }
  TensorImpl::of(x)->retain();
  return Edge(TensorImpl::of(x));
}

std::uint64_t sequence_of(const Edge& edge) { return edge.node() ? edge.node()->sequence : 0; }

bool same_form(const Tensor& x, const Tensor& like) {
  return x.dtype() == like.dtype() && same_shape(*TensorImpl::of(x), *TensorImpl::of(like));
}

bool is_column_major(const Tensor& x) {
  const int rank = x.rank();
  return rank >= 2 && !x.is_contiguous() && TensorImpl::of(x)->strides[rank - 2] == 1;
}

Like* pooled_like(const Tensor& x) {
  return new (Pool<Like>::take()) Like{x.dtype(), x.device(), Dims(x.shape()), is_column_major(x)};
}

void save(Saved& saved, const Tensor& x) {
  saved.tensor = x;
  saved.version = TensorImpl::of(x)->version();
}

// The number of operands: inputs and numbers.
int operand_count(const Call& call) {
  const unsigned s = call.scalars;
  return static_cast<int>(call.n_inputs + (s & 1) + (s >> 1 & 1) + (s >> 2 & 1));
}

// Calls f with the position and the tensor of each operand that is a tensor.
template <class F>
void for_each_tensor(const Call& call, F&& f) {
  for (int i = 0, input = 0; input < static_cast<int>(call.n_inputs); ++i) {
    if (!call.is_scalar(i)) f(i, *call.inputs[input++]);
  }
}

// The op whose gradient keeps a result in the storage of x: the op that made x, or made the tensor
// that x is a view of. Null: none.
const char* keeper_of(const Tensor& x) {
  for (TapeNode* node = history_of(x)->node; node && !node->recomputed && !node->ran;
       node = node->operand_count() > 0 ? node->edge(0).node() : nullptr) {
    for (int i = 0; i < node->n_outputs; ++i) {
      const Tensor& kept = node->output(i).tensor;
      if (kept.defined() && kept.shares_storage_with(x)) return node->name();
    }
    if (op_info(node->call.op).kind != OpKind::view) break;
  }
  return nullptr;
}

// Refuses writes to leaves, to memory that another tensor shares, and to values that a gradient
// reads.
void check_in_place(const Call& call, const OpInfo& info, const Tensor& x) {
  if (needs_gradient(x) && !history_of(x)->node) {
    fail(
        "[{}_] expected a tensor that does not collect a gradient itself, got the leaf {}; write "
        "into it under no_grad",
        info.name, x.describe());
  }
  // Traces and compiled steps read the memory where it is, so their references do not count.
  const Storage* const storage = TensorImpl::of(x)->storage;
  if (storage && storage->refs.load(std::memory_order_relaxed) >
                     1 + storage->replay_refs.load(std::memory_order_relaxed)) {
    if (const char* keeper = history_of(x) ? keeper_of(x) : nullptr) {
      fail(
          "[{}_] expected a tensor that no gradient is computed from, got {}, a result that {}'s "
          "gradient keeps; use {}, or write under no_grad",
          info.name, x.describe(), keeper, info.name);
    }
    fail(
        "[{}_] expected a tensor that shares its memory with no other while gradients are "
        "recorded, got {}; use {}, or write under no_grad",
        info.name, x.describe(), info.name);
  }
  // The overwritten operands: the first of a pointwise call, and others that are the same tensor.
  CallValues overwritten = 0, read = 0;
  for_each_tensor(call, [&](int i, const Tensor& operand) {
    if (TensorImpl::of(operand) == TensorImpl::of(x)) overwritten |= operand_bit(i);
    if (needs_gradient(operand) && info.gradient.has_gradient(i))
      read |= info.gradient.needs_for(i);
  });
  if (read & overwritten) {
    fail("[{}_] expected not to overwrite a value that a gradient is computed from, got {}; use {}",
         info.name, x.describe(), info.name);
  }
}

struct DropTapeNode {
  void operator()(TapeNode* node) const { node->drop(); }
};
using TapeNodePtr = std::unique_ptr<TapeNode, DropTapeNode>;

// A new node with the call's attributes and space for `operands` operands.
TapeNodePtr new_node(const Call& call, const OpInfo& info, int operands) {
  TapeNodePtr node(new TapeNode(call.op));
  node->n_outputs = info.n_outputs;
  if (operands > TapeNode::kInline || info.n_outputs > 1) {
    const auto n = static_cast<std::size_t>(operands);
    node->rest.reset(new TapeNodeRest{std::vector<Edge>(n), std::vector<Saved>(n),
                                      std::vector<Saved>(info.n_outputs), std::vector<Like*>(n),
                                      std::vector<Slot>(info.n_outputs)});
  } else {
    node->n_operands = static_cast<std::uint8_t>(operands);
  }
  node->call.n_attrs = call.n_attrs;
  node->call.scalars = call.scalars;
  node->call.dtype = call.dtype;
  node->call.in_place = call.in_place;
  node->call.device = call.device;
  std::copy_n(call.attrs, call.n_attrs, node->call.attrs);
  return node;
}

// Sets the node's edges and sequence, and the metadata of operands that its gradient rule needs.
// Returns the set of values that the gradients along its edges read, which must be saved. Without
// edges the sequence stays 0.
CallValues connect(TapeNode& node, const Call& call, const OpInfo& info,
                   const Tensor& first_output) {
  const GradientRule& rule = info.gradient;
  const bool pointwise = info.kind == OpKind::pointwise;
  std::uint64_t latest = 0;
  CallValues needed = 0;
  bool any = false;
  for_each_tensor(call, [&](int i, const Tensor& x) {
    // Ops without a rule are recorded too, so that a backward that reaches them can refuse.
    const Edge edge = !rule.run || rule.has_gradient(i) ? edge_to(x) : Edge();
    if (edge) {
      any = true;
      needed |= rule.needs_for(i);
      latest = std::max(latest, sequence_of(edge));
      node.edge(i) = edge;
    }
    // Pointwise rules need the metadata of broadcast operands, whose gradients are summed to their
    // shape. Other rules may ask for any metadata, and if there are several outputs, the first may
    // have no gradient to take it from.
    if (pointwise ? edge && !same_form(x, first_output)
                  : info.n_outputs > 1 || !same_form(x, first_output) || is_column_major(x)) {
      node.like(i) = pooled_like(x);
    }
  });
  if (any) node.sequence = next_sequence(latest);
  return needed;
}

// Records the call as a node of the tape. The call's floating outputs are the node's outputs.
void record_node(const Call& call, const OpInfo& info, Tensor* outputs) {
  TapeNodePtr node = new_node(call, info, operand_count(call));
  const CallValues needed = connect(*node, call, info, outputs[0]);
  if (node->sequence == 0) {  // overwritten by a constant
    if (call.in_place) forget_history(outputs[0]);
    return;
  }
  for_each_tensor(call, [&](int i, const Tensor& x) {
    if (needed & operand_bit(i)) save(node->operand(i), x);
  });
  for (int i = 0; i < info.n_outputs; ++i) {
    if (needed & result_bit(i)) save(node->output(i), without_history(outputs[i]));
  }
  TapeNode* const recorded = node.release();  // its reference is the first output's
  bool owned = false;
  for (int i = 0; i < info.n_outputs; ++i) {
    if (!is_floating(outputs[i].dtype())) continue;
    if (std::exchange(owned, true)) recorded->retain();
    attach(outputs[i], recorded, i);
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
  if (bool* notices = thread_context.checkpoint_notices) [[unlikely]] {
    *notices = true;
    return;
  }
  bool floating = false;
  for (int i = 0; i < info.n_outputs; ++i) floating |= is_floating(outputs[i].dtype());
  const bool constant = info.gradient.run && !info.gradient.differentiable;
  if (floating && !constant) {
    record_node(call, info, outputs);
  } else if (call.in_place) {
    for (int i = 0; i < info.n_outputs; ++i) forget_history(outputs[i]);
  }
}

}  // namespace brrr::autograd
