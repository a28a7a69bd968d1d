// Evidence made by hand, for tests of verdicts.
#pragma once

#include <string>

#include "brrr/measure/diagnose.h"
#include "tests/harness/catch.h"

namespace brrr::testing {

// In picoseconds, of microseconds.
inline std::int64_t ps(double us) { return static_cast<std::int64_t>(us * 1e6); }
inline StepTime time_of(double overhead, double bandwidth, double compute) {
  return {ps(overhead), ps(bandwidth), ps(compute)};
}
inline measure::Timing timing(double us, double spread = 0.02) {
  return {.median = us * 1e-6,
          .least = us * 0.98e-6,
          .most = us * 1.05e-6,
          .spread = spread,
          .samples = 21};
}

// A step on CUDA that takes `step` us, `queued` of them on the device. `device`: the device's time
// as predicted; `growing`: its part that grows with the work.
inline measure::Evidence cuda_step(Mode mode, double step, double queued, const StepTime& device,
                                   const StepTime& growing) {
  measure::Evidence e{
      .device = cuda(0), .mode = mode, .step = timing(step), .queued = timing(queued)};
  e.host = timing(step * 0.9);
  e.cost.flops = 1'000'000;
  e.cost.bytes = 1'000'000;
  e.cost.kernels = 30;
  e.cost.predicted_at_timed_speed = e.cost.on_device = device;
  e.cost.roofline.growing = growing;
  e.cost.roofline.bound = growing;
  e.cost.roofline.moving_ps = growing.bandwidth_ps;
  e.cost.roofline.computing_ps = growing.compute_ps;
  e.cost.calibrated = true;
  e.gpu = measure::GpuState{.unavailable = {}, .processes = 1};
  return e;
}

inline measure::Evidence cpu_step(double step, double in_kernels, const StepTime& predicted,
                                  const StepTime& growing) {
  measure::Evidence e = cuda_step(Mode::eager, step, 0, predicted, growing);
  e.device = cpu;
  e.host.reset();
  e.queued.reset();
  e.gpu.reset();
  e.in_kernels = timing(in_kernels);
  return e;
}

// Sums are 1, and no part is negative.
inline measure::Diagnosis checked(const measure::Evidence& e) {
  measure::Diagnosis d = measure::judge(e);
  REQUIRE(d.shares.has_value() == d.regime.has_value());
  CHECK(d.regime.has_value() == d.problems.empty());
  CHECK(d.advice.empty() == !d.regime);
  if (!d.shares) return d;
  CHECK(d.shares->sum() == Approx(1));
  for (const double part :
       {d.shares->idle, d.shares->launches, d.shares->transfers, d.shares->small,
        d.shares->bandwidth, d.shares->compute, d.shares->inefficient})
    CHECK(part >= 0);
  return d;
}

// The only problem; a count where there are several.
inline std::string only_problem(const measure::Evidence& e) {
  const measure::Diagnosis d = checked(e);
  CHECK_FALSE(d.regime);
  return d.problems.size() == 1 ? d.problems[0] : std::to_string(d.problems.size()) + " problems";
}

// The only doubt of a verdict; a count where there are several.
inline std::string only_doubt(const measure::Evidence& e) {
  const measure::Diagnosis d = checked(e);
  CHECK(d.regime);
  return d.doubts.size() == 1 ? d.doubts[0] : std::to_string(d.doubts.size()) + " doubts";
}

// The device's time of a medium step on an H200, bound by compute.
inline const StepTime kMedium = time_of(35, 157, 475), kMediumGrowing = time_of(0, 157, 400);

}  // namespace brrr::testing
