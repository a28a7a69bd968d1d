// Removes calls that change nothing: copies of intermediate values to the same type and layout, and
// products with one. Results keep their bits.
#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/passes.h"

namespace brrr::graph {
namespace {

// The input that equals the call's only result element by element; null: there is none.
const Value* same_as(const Node& node) {
  const Call& call = node.call;
  if (call.in_place || has_effect(node) || node.inputs.size() != 1 || node.outputs.size() != 1)
    return nullptr;
  const Value &in = node.inputs[0], &out = node.outputs[0];
  if (in.dtype != out.dtype || in.shape != out.shape) return nullptr;
  const Algebra algebra = op_info(call.op).algebra;
  if (algebra == Algebra::identity) return &in;
  if (algebra == Algebra::product && is_floating(call.dtype)) {
    const int number = call.is_scalar(0) ? 0 : 1;
    if (call.number(number) == 1) return &in;
  }
  return nullptr;
}

}  // namespace

int simplify(Graph& graph) {
  const Flow flow(graph);
  Substitution substitution(graph);
  const int removed = remove_nodes(graph, [&](Node& node) {
    substitution.apply(node);
    const Value* in = same_as(node);
    const bool redundant = in && is_whole(graph, *in) &&
                           flow.is_intermediate(node.outputs[0].buffer) &&
                           graph.is_temporary(in->buffer) && flow.writers(in->buffer).size() == 1;
    if (redundant) substitution.replace(node.outputs[0].buffer, in->buffer);
    return redundant;
  });
  substitution.apply_to_marks(graph);
  return removed;
}

}  // namespace brrr::graph
