// Common subexpressions: of two calls that compute the same, the second one goes.
#include <map>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/rename.h"

namespace brrr::graph {
namespace {

// What makes a call the same as another: the row, its attributes, and where its inputs lie at which
// state of their buffers.
std::vector<std::int64_t> identity_of(const Node& node, const std::vector<int>& states) {
  const Call& call = node.call;
  std::vector<std::int64_t> words = {static_cast<std::int64_t>(call.op), call.scalars,
                                     static_cast<std::int64_t>(call.dtype), call.n_attrs};
  for (int i = 0; i < call.n_attrs; ++i) words.push_back(call.attrs[i].bits);
  for (const Value& input : node.inputs) {
    words.push_back(input.buffer);
    words.push_back(states[static_cast<std::size_t>(input.buffer)]);
    words.push_back(static_cast<std::int64_t>(input.dtype));
    words.push_back(input.offset);
    words.push_back(input.shape.size());
    words.insert(words.end(), input.shape.begin(), input.shape.end());
    words.insert(words.end(), input.strides.begin(), input.strides.end());
  }
  return words;
}

}  // namespace

int merge_equal(Graph& graph) {
  const std::vector<int> writes = writes_of(graph);
  const std::vector<bool> results = results_of(graph);
  const auto written_once = [&](const Node& node) {
    for (const Value& output : node.outputs) {
      if (!graph.is_temporary(output.buffer) ||
          writes[static_cast<std::size_t>(output.buffer)] != 1 ||
          results[static_cast<std::size_t>(output.buffer)])
        return false;
    }
    return true;
  };
  Renaming renaming(graph);
  std::vector<int> states(graph.buffers.size());
  std::map<std::vector<std::int64_t>, std::vector<Value>> known;
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    renaming.apply(node);
    // A registered op may do more than its results say.
    const bool pure =
        !node.call.in_place && written_once(node) && !op_info(node.call.op).registered;
    if (pure) {
      const auto [found, is_new] = known.try_emplace(identity_of(node, states), node.outputs);
      if (!is_new) {
        for (std::size_t i = 0; i < node.outputs.size(); ++i) {
          renaming.rename(node.outputs[i].buffer, found->second[i].buffer);
        }
        continue;
      }
    }
    for (const Value& output : node.outputs) ++states[static_cast<std::size_t>(output.buffer)];
    kept.push_back(std::move(node));
  }
  const int removed = static_cast<int>(graph.nodes.size() - kept.size());
  graph.nodes = std::move(kept);
  return removed;
}

}  // namespace brrr::graph
