// Calls that depend on nothing that changes between replays (masks, the seed of a loss's gradient)
// run once, and their results stay.
#include <algorithm>

#include "brrr/graph/flow.h"
#include "brrr/graph/passes.h"

namespace brrr::graph {
namespace {

// Limit for all constants, whose memory replays cannot reuse.
constexpr std::size_t kMostBytes = std::size_t{16} << 20;

}  // namespace

int hoist_constants(Graph& graph) {
  const Flow flow(graph);
  std::vector<bool> constant(graph.buffers.size());
  std::size_t bytes = 0;
  const auto may_hoist = [&](const Node& node) {
    std::size_t more = 0;
    for (const Value& output : node.outputs) {
      if (!flow.is_intermediate(output.buffer)) return false;
      more += graph.buffers[output.buffer].bytes;
    }
    return is_pure(node) && bytes + more <= kMostBytes &&
           std::ranges::all_of(node.inputs,
                               [&](const Value& input) { return constant[input.buffer]; });
  };
  return remove_nodes(graph, [&](Node& node) {
    if (!may_hoist(node)) {
      // A constant that only constants read needs no memory in replays.
      for (const Value& input : node.inputs) {
        if (constant[input.buffer]) graph.buffers[input.buffer].kind = Buffer::Kind::constant;
      }
      return false;
    }
    for (const Value& output : node.outputs) {
      constant[output.buffer] = true;
      bytes += graph.buffers[output.buffer].bytes;
    }
    graph.constants.push_back(std::move(node));
    return true;
  });
}

}  // namespace brrr::graph
