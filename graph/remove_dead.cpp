// Dead code: removes calls whose results no call reads, except those that check values.
#include <algorithm>

#include "brrr/graph/flow.h"

namespace brrr::graph {

namespace {

void remove_dead_constants(Graph& graph, std::vector<bool>& needed) {
  std::vector<Node> live;
  for (std::size_t i = graph.constants.size(); i-- > 0;) {
    Node& node = graph.constants[i];
    if (!std::ranges::any_of(node.outputs, [&](const Value& v) { return needed[v.buffer]; }))
      continue;
    for (const Value& input : node.inputs) needed[input.buffer] = true;
    live.push_back(std::move(node));
  }
  std::ranges::reverse(live);
  graph.constants = std::move(live);
}

}  // namespace

int remove_dead(Graph& graph) {
  const Flow flow(graph);
  std::vector<bool> needed(graph.buffers.size());
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const int buffer = static_cast<int>(i);
    const Buffer::Kind kind = graph.buffers[i].kind;
    const bool is_made = kind == Buffer::Kind::temporary || kind == Buffer::Kind::constant;
    needed[i] = !is_made || flow.escapes(buffer);
  }
  std::vector<bool> live(graph.nodes.size());
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const bool used = has_effect(node) || std::ranges::any_of(node.outputs, [&](const Value& v) {
                        return needed[v.buffer];
                      });
    live[i] = used;
    if (!used) continue;
    for (const Value& input : node.inputs) needed[input.buffer] = true;
  }
  remove_dead_constants(graph, needed);
  return remove_nodes(graph, [&, i = std::size_t{0}](const Node&) mutable { return !live[i++]; });
}

}  // namespace brrr::graph
