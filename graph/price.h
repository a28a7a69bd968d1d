// Measured times of kernels. A kernel is timed in a chain of itself, replayed over memory of its
// own, so that neither launches of the host nor other kernels of the step count.
#pragma once

#include <cstdint>
#include <optional>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// The time of a node's kernel in a replay, in picoseconds: as it was measured before in this
// process for a kernel and operands like these, else measured now. `bytes_touched`: by the step,
// whose other kernels evict this one's operands from the caches. None for calls that have effects
// or refuse the values, where memory is short, and where the machine was disturbed.
std::optional<std::int64_t> measured_time(const Graph& graph, const Node& node,
                                          std::int64_t bytes_touched);

}  // namespace brrr::graph
