#include "graph/waves.h"

#include <algorithm>

#include "dispatch/op_info.h"

namespace brrr::graph {
namespace {

// A product over several threads by itself: it leaves nothing for a neighbour.
constexpr double kSplitsItself = 100e3;
constexpr double kMultiplyAddNs = 0.025, kElementNs = 0.4, kCallNs = 10;

}  // namespace

double estimated_ns(const Node& node) {
  double elements = 0;
  for (const Value& v : node.inputs) elements = std::max(elements, static_cast<double>(v.numel()));
  for (const Value& v : node.outputs) elements = std::max(elements, static_cast<double>(v.numel()));
  double ns = kCallNs + elements * kElementNs;
  if (node.call.op == Op::matmul || node.call.op == Op::affine) {
    const double products = static_cast<double>(node.outputs[0].numel()) *
                            static_cast<double>(node.inputs[0].shape.back());
    ns += products * kMultiplyAddNs;
  }
  return ns;
}

std::vector<int> cut_into_waves(const Graph& graph, const Plan& plan, const std::vector<int>& calls,
                                double least_ns) {
  std::vector<int> waves;
  for (std::size_t first = 0; first < calls.size();) {
    std::size_t end = first;
    double all = 0, largest = 0;
    for (; end < calls.size(); ++end) {
      const auto call = static_cast<std::size_t>(calls[end]);
      const auto in_wave = [&](int before) {
        return std::find(calls.begin() + static_cast<std::ptrdiff_t>(first),
                         calls.begin() + static_cast<std::ptrdiff_t>(end),
                         before) != calls.begin() + static_cast<std::ptrdiff_t>(end);
      };
      const double ns = estimated_ns(graph.nodes[call]);
      if (ns > kSplitsItself || std::ranges::any_of(plan.after[call], in_wave)) break;
      all += ns;
      largest = std::max(largest, ns);
    }
    // What a second thread could take over.
    const bool pays = end - first > 1 && all - largest >= least_ns;
    const std::size_t count = pays ? end - first : 1;
    waves.push_back(static_cast<int>(count));
    first += count;
  }
  return waves;
}

}  // namespace brrr::graph
