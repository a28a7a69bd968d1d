// Predicted times of kernels and steps, in integer picoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace brrr::core {

// A kernel moves bytes and computes at the same time.
struct KernelTime {
  std::int64_t overhead_ps = 0, moving_ps = 0, computing_ps = 0;

  std::int64_t ps() const { return overhead_ps + std::max(moving_ps, computing_ps); }
  double seconds() const { return static_cast<double>(ps()) * 1e-12; }
};

// The time of a step, divided among launches, kernels bound by bandwidth and kernels bound by
// compute.
struct StepTime {
  std::int64_t overhead_ps = 0, bandwidth_ps = 0, compute_ps = 0;

  std::int64_t ps() const { return overhead_ps + bandwidth_ps + compute_ps; }
  double seconds() const { return static_cast<double>(ps()) * 1e-12; }
  StepTime& operator+=(const KernelTime& kernel) {
    overhead_ps += kernel.overhead_ps;
    (kernel.computing_ps > kernel.moving_ps ? compute_ps : bandwidth_ps) +=
        std::max(kernel.moving_ps, kernel.computing_ps);
    return *this;
  }
  StepTime& operator+=(const StepTime& other) {
    overhead_ps += other.overhead_ps;
    bandwidth_ps += other.bandwidth_ps;
    compute_ps += other.compute_ps;
    return *this;
  }
};

// The time of a step's work at the full rates of the ceilings: without launches, and without the
// latency of kernels that are too small to reach these rates.
struct Roofline {
  std::int64_t moving_ps = 0, computing_ps = 0;  // of all kernels
  StepTime bound;    // each kernel's larger time, by the ceiling that binds it
  StepTime growing;  // the time that twice the work would add to each kernel, likewise

  Roofline& operator+=(const Roofline& other) {
    moving_ps += other.moving_ps;
    computing_ps += other.computing_ps;
    bound += other.bound;
    growing += other.growing;
    return *this;
  }
};

}  // namespace brrr::core
