// The time of calls as the machine's limits predict it.
#pragma once

#include <cstdint>

#include <brrr/graph/ir.h>

namespace brrr::graph {

struct Ceilings {
  double bytes_per_second;
  double flops_per_second;  // of pointwise calls and reductions
  double products_per_second,
      half_products;        // FLOPs of matrix products in f32 and wider, in 16-bit types
  double seconds_per_call;  // of the shortest call
};

// Typical ones of a device of this kind.
Ceilings ceilings_of(Device device);

// In picoseconds, integers whose sums do not depend on the order.
std::int64_t time_to_move(std::int64_t bytes, const Ceilings& ceilings);
// The arithmetic of a call alone, and all of it.
std::int64_t time_to_compute(const Node& node, const Ceilings& ceilings);
std::int64_t time_of(const Node& node, const Ceilings& ceilings);
std::int64_t time_of(const Graph& graph, const Ceilings& ceilings);

}  // namespace brrr::graph
