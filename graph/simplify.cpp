// Calls that change nothing: copies to the same type and layout of values that nobody writes to
// afterwards, and products with one. Results keep their bits.
#include "brrr/dispatch/op_info.h"
#include "brrr/graph/rename.h"

namespace brrr::graph {
namespace {

// The input that the only result equals, element by element; null: there is none such.
const Value* same_as(const Node& node) {
  const Call& call = node.call;
  if (call.in_place || node.inputs.size() != 1 || node.outputs.size() != 1) return nullptr;
  const Value &in = node.inputs[0], &out = node.outputs[0];
  if (in.dtype != out.dtype || in.shape != out.shape) return nullptr;
  if (call.op == Op::copy) return &in;
  const bool by_number = call.scalars == 1 || call.scalars == 2;
  if (call.op == Op::mul && by_number && is_floating(call.dtype)) {
    const int place = call.scalars == 1 ? 0 : 1;
    if (call.attrs[place].d() == 1) return &in;
  }
  return nullptr;
}

}  // namespace

int simplify(Graph& graph) {
  const std::vector<int> writes = writes_of(graph);
  const std::vector<bool> results = results_of(graph);
  const auto whole = [&](const Value& value) {
    return value.is_contiguous() && value.offset == 0 &&
           value.bytes() == graph.buffers[static_cast<std::size_t>(value.buffer)].bytes;
  };
  const auto written_once = [&](const Value& value) {
    return graph.is_temporary(value.buffer) && writes[static_cast<std::size_t>(value.buffer)] == 1;
  };
  Renaming renaming(graph);
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    renaming.apply(node);
    const Value* in = same_as(node);
    if (in && whole(*in) && written_once(*in) && written_once(node.outputs[0]) &&
        !results[static_cast<std::size_t>(node.outputs[0].buffer)]) {
      renaming.rename(node.outputs[0].buffer, in->buffer);
      continue;
    }
    kept.push_back(std::move(node));
  }
  const int removed = static_cast<int>(graph.nodes.size() - kept.size());
  graph.nodes = std::move(kept);
  return removed;
}

}  // namespace brrr::graph
