// Eager calls as the host sees them: how many a step makes, how long the host takes for them, and
// how fast the host is now.
#pragma once

#include <algorithm>
#include <cstdint>

#include <brrr/graph/ceilings.h>
#include <brrr/measure/timing.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

struct EagerCalls {
  std::int64_t kernels = 0;   // calls with a kernel
  std::int64_t products = 0;  // those of them that are matrix products
  std::int64_t library = 0;   // calls of cuBLASLt, on CUDA: its products
  std::int64_t views = 0;
  std::int64_t recorded = 0;  // calls that autograd records

  // Host time of all calls; on the CPU without the time of kernels.
  std::int64_t ps(const graph::EagerTimes& times) const {
    const std::int64_t own = std::max<std::int64_t>(products - library, 0);
    return (kernels - products) * times.call_ps + own * times.product_ps +
           library * times.library_ps + views * times.view_ps + recorded * times.record_ps;
  }
};

// Additions of a few elements.
Batch small_calls(Device device);

// The time of small_calls, relative to the calibrated one: 1.5 on a host whose clock has fallen by
// a third since. 1 where ceilings are defaults.
double host_slowdown(const Timing& small_calls, const graph::Ceilings& ceilings);
// The same now, by the median of 50 milliseconds. The speed of a shared host changes faster than
// that: where a step is timed, time small_calls alternately with it.
double host_slowdown(Device device, const graph::Ceilings& ceilings);

// These times on a host that is slower by this factor.
graph::EagerTimes slowed(const graph::EagerTimes& times, double slowdown, Device device);

}  // namespace brrr::measure
