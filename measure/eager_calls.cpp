#include "brrr/measure/eager_calls.h"

#include <algorithm>
#include <cmath>

#include "brrr/autograd/autograd.h"
#include "brrr/ops/functions.h"

namespace brrr::measure {

Batch small_calls(Device device) {
  const Options here{.dtype = f32, .device = device};
  const std::int64_t elements = device.is_cpu() ? 1 : 256;
  return synchronized_batch(device, [a = ones({elements}, here), b = ones({elements}, here)] {
    const NoGrad unrecorded;
    add(a, b);
  });
}

double host_slowdown(const Timing& small_calls, const graph::Ceilings& ceilings) {
  if (!ceilings.calibrated() || ceilings.eager.call_ps <= 0) return 1;
  return small_calls.median * 1e12 / static_cast<double>(ceilings.eager.call_ps);
}

double host_slowdown(Device device, const graph::Ceilings& ceilings) {
  if (!ceilings.calibrated()) return 1;
  const Sampling sampling{
      .samples = 41, .sample_seconds = 1e-3, .budget_seconds = 50e-3, .warm_seconds = 2e-3};
  return host_slowdown(time(small_calls(device), sampling), ceilings);
}

graph::EagerTimes slowed(const graph::EagerTimes& times, double slowdown, Device device) {
  const auto slower = [slowdown](std::int64_t ps) {
    return std::llround(static_cast<double>(ps) * slowdown);
  };
  return {.call_ps = slower(times.call_ps),
          .product_ps = slower(times.product_ps),
          .library_ps = slower(times.library_ps),
          .view_ps = slower(times.view_ps),
          .record_ps = slower(times.record_ps),
          .queued_ps = device.is_cpu() ? slower(times.queued_ps) : times.queued_ps};
}

}  // namespace brrr::measure
