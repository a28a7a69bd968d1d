// The predicted time of the calls of a graph that is not lowered yet, run one after another.
#pragma once

#include <cstdint>

#include <brrr/graph/ceilings.h>
#include <brrr/graph/ir.h>

namespace brrr::graph {

// The ceilings of the graph's device, with the bandwidth for the memory that the step accesses.
Ceilings ceilings_for(const Graph& graph);

// Times in picoseconds.
std::int64_t time_to_move(std::int64_t bytes, const Ceilings& ceilings);
// The time of a call's arithmetic alone; of its arithmetic and memory traffic.
std::int64_t time_to_compute(const Node& node, Device device, const Ceilings& ceilings);
std::int64_t time_of(const Node& node, Device device, const Ceilings& ceilings);
std::int64_t time_of(const Graph& graph, const Ceilings& ceilings);

}  // namespace brrr::graph
