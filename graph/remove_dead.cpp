// Dead code: calls whose results nobody reads go, but for those that are there to throw.
#include <algorithm>

#include "brrr/graph/flow.h"

namespace brrr::graph {

int remove_dead(Graph& graph) {
  const Flow flow(graph);
  std::vector<bool> needed(graph.buffers.size());
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const int buffer = static_cast<int>(i);
    needed[i] = !graph.is_temporary(buffer) || flow.escapes(buffer);
  }
  std::vector<Node> live;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    const bool used = has_effect(node) || std::ranges::any_of(node.outputs, [&](const Value& v) {
                        return needed[static_cast<std::size_t>(v.buffer)];
                      });
    if (!used) continue;
    for (const Value& input : node.inputs) needed[static_cast<std::size_t>(input.buffer)] = true;
    live.push_back(std::move(node));
  }
  std::ranges::reverse(live);
  return replace_nodes(graph, std::move(live));
}

}  // namespace brrr::graph
