// Drops calls whose results nobody reads, but for `checked`, which is there to throw.
#include "brrr/graph/ir.h"

namespace brrr::graph {

int remove_dead(Graph& graph) {
  std::vector<bool> needed(graph.buffers.size());
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    needed[i] = graph.buffers[i].kind != Buffer::Kind::temporary;
  }
  const auto need = [&](const Value& value) {
    if (value.buffer >= 0) needed[static_cast<std::size_t>(value.buffer)] = true;
  };
  for (const Output& output : graph.outputs) need(output.value);
  for (const LeafGradient& gradient : graph.gradients) need(gradient.value);

  std::vector<Node> live;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    bool used = node.call.op == Op::checked;
    for (const Value& output : node.outputs)
      used |= needed[static_cast<std::size_t>(output.buffer)];
    if (!used) continue;
    for (const Value& input : node.inputs) need(input);
    live.push_back(std::move(node));
  }
  const int removed = static_cast<int>(graph.nodes.size() - live.size());
  graph.nodes.assign(std::make_move_iterator(live.rbegin()), std::make_move_iterator(live.rend()));
  return removed;
}

}  // namespace brrr::graph
