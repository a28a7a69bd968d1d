// On the CPU: runs of calls that are independent of one another, each too small to be worth several
// threads itself, are done by several threads at once.
#pragma once

#include <vector>

#include "graph/ir.h"
#include "graph/plan.h"

namespace brrr::graph {

// A call's time on one thread, in nanoseconds, roughly: from its operands' sizes alone.
double estimated_ns(const Node& node);

// Cuts `calls`, in the order in which they run, into waves: the number of calls of each. Calls of a
// wave wait for none of it; a wave of more than one has work for two threads that outweighs
// `least_ns`, which handing it out costs.
std::vector<int> cut_into_waves(const Graph& graph, const Plan& plan, const std::vector<int>& calls,
                                double least_ns);

}  // namespace brrr::graph
