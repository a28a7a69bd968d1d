// A flame graph of sampled stacks as SVG: callers below, widths by time, colors by what a function
// does for a step. It needs no script and no font or style from elsewhere, and follows the reader's
// light or dark scheme.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <brrr/measure/ledger.h>

namespace brrr::measure {

// The stacks of a profile, merged from the outermost frame on.
struct FlameNode {
  std::string name;
  std::int64_t ns = 0;       // with its callees
  std::int64_t samples = 0;  // likewise
  HostClass of = HostClass::other;
  std::vector<FlameNode> callees;  // by falling time
};

// Omits the frames of the sampler and the timing loop, which every stack has. Collapses recursive
// calls, and frames of the standard library that only forward a call.
FlameNode flame_tree(const HostProfile& profile);

struct FlameGraph {
  std::string title;   // "One addition on the CPU"
  double step_ns = 0;  // of the untraced step; 0: unknown
};
std::string flame_svg(const HostProfile& profile, const FlameGraph& graph);

}  // namespace brrr::measure
