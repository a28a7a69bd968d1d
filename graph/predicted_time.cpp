#include "brrr/graph/predicted_time.h"

#include <algorithm>
#include <cmath>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/fusion_kernel.h"

namespace brrr::graph {
namespace {

std::int64_t picoseconds(double seconds) { return std::llround(seconds * 1e12); }

}  // namespace

Ceilings ceilings_of(Device device) {
  if (device.is_cuda()) return {4e12, 30e12, 50e12, 600e12, 1.5e-6};
  return {60e9, 30e9, 400e9, 400e9, 0.1e-6};
}

std::int64_t time_to_move(std::int64_t bytes, const Ceilings& ceilings) {
  return picoseconds(static_cast<double>(bytes) / ceilings.bytes_per_second);
}

std::int64_t time_to_compute(const Node& node, const Ceilings& ceilings) {
  std::int64_t flops = 0;
  bool is_product = false;
  if (node.body) {
    for (const BodySpec* body = node.body.get(); body; body = body->beside.get()) {
      flops += body->flops;
      is_product |= body->body.contraction() >= 0;
    }
  } else if (!node.outputs.empty()) {
    flops = flops_of(node);
    is_product = op_info(node.call.op).algebra == Algebra::contraction;
  }
  const bool is_half = !node.inputs.empty() && size_of(node.inputs[0].dtype) == 2;
  return picoseconds(static_cast<double>(flops) / (!is_product ? ceilings.flops_per_second
                                                   : is_half   ? ceilings.half_products
                                                               : ceilings.products_per_second));
}

std::int64_t time_of(const Node& node, const Ceilings& ceilings) {
  return picoseconds(ceilings.seconds_per_call) +
         std::max(time_to_move(bytes_moved(node), ceilings), time_to_compute(node, ceilings));
}

std::int64_t time_of(const Graph& graph, const Ceilings& ceilings) {
  std::int64_t time = 0;
  for (const Node& node : graph.nodes) time += time_of(node, ceilings);
  return time;
}

}  // namespace brrr::graph
