#include "brrr/graph/predicted_time.h"

#include "brrr/graph/flow.h"
#include "brrr/graph/fusion_kernel.h"

namespace brrr::graph {

Ceilings ceilings_for(const Graph& graph) {
  return ceilings_of(graph.device)->for_step_over(bytes_touched(graph)).at_full_rates();
}

std::int64_t time_to_move(std::int64_t bytes, const Ceilings& ceilings) {
  return ceilings.moved.time_of(bytes);
}

std::int64_t time_to_compute(const Node& node, Device device, const Ceilings& ceilings) {
  return time_of(work_of(node, device), ceilings, 0).computing_ps;
}

std::int64_t time_of(const Node& node, Device device, const Ceilings& ceilings) {
  return time_of(work_of(node, device), ceilings, ceilings.node_ps).ps();
}

std::int64_t time_of(const Graph& graph, const Ceilings& ceilings) {
  std::int64_t time = 0;
  for (const Node& node : graph.nodes) time += time_of(node, graph.device, ceilings);
  return time;
}

}  // namespace brrr::graph
