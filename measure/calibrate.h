// brrr calibrate: measures the ceilings of a device, and keeps them with what disturbed the
// measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <brrr/graph/ceilings.h>
#include <brrr/measure/bench.h>
#include <brrr/measure/gpu_state.h>

namespace brrr::measure {

struct Calibration {
  Device device;
  graph::Ceilings ceilings;
  Results readings;
  // Plain f32 rates before and after everything else, in flops a second.
  double first_rate = 0, last_rate = 0;
  std::optional<GpuState> gpu;  // before and after the measurements; none of the CPU
  double seconds = 0;
  bool complete = true;  // false: small sizes and few samples
};

// Up to a minute where matrix products have not been tuned before, else a few seconds.
Calibration calibrate(const BenchOptions& options);

// What disturbed the measurement, a line each. Of a disturbed reading the least sample counts.
std::vector<std::string> disturbances(const Calibration& calibration);
// Disturbed ceilings do not replace others. Those of small sizes are not kept.
bool is_to_be_kept(const Calibration& calibration);

// --- Whether ceilings hold now ---

// A quick repetition of readings that ceilings depend on.
struct CeilingsProbe {
  double flops = 0;            // a second, of multiply-adds f32
  std::int64_t clock_mhz = 0;  // of a GPU, right after the multiply-adds; 0: unknown
};
// Takes some 10 ms, on CUDA 0.3 s more, in which the clock settles.
CeilingsProbe probe_ceilings(Device device);
// "ceilings measured at 62.1 GFLOP/s, now 45.0", a line each: rates that differ by more than 15 %,
// clocks by more than 10 %. Defaults have none.
std::vector<std::string> drift_of(const graph::Ceilings& ceilings, const CeilingsProbe& now);
// The same of the kept ceilings, now, and what disturbed their measurement.
std::vector<std::string> ceilings_drift(Device device);

}  // namespace brrr::measure
