// brrr calibrate: measures the ceilings of a device, and keeps them unless something disturbed the
// measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <brrr/graph/ceilings.h>
#include <brrr/measure/bench.h>

namespace brrr::measure {

// What the driver's management library says of a GPU.
struct GpuState {
  std::string problem;                   // why it says nothing; empty: it does
  int processes = 0;                     // that compute on it, those that are visible from here
  std::int64_t clock_mhz = 0;            // of the multiprocessors; 0: unknown
  std::vector<std::string> slowed_by{};  // "thermal slowdown"
};
GpuState gpu_state(Device device);

struct Calibration {
  Device device;
  graph::Ceilings ceilings;
  Results readings;
  // Plain f32 rates before and after everything else, in flops a second.
  double first_rate = 0, last_rate = 0;
  std::optional<GpuState> gpu;  // after the measurements; none of the CPU
  double seconds = 0;
  bool complete = true;  // false: small sizes and few samples
};

// Up to a minute where matrix products have not been tuned before, else a few seconds.
Calibration calibrate(const BenchOptions& options);

// What disturbs measurements on a card in this state, a line each.
std::vector<std::string> disturbances(const GpuState& gpu);
// Why the ceilings must not be kept, a line each; empty: they may be.
std::vector<std::string> disturbances(const Calibration& calibration);
// What could not be checked, a line each.
std::vector<std::string> unchecked(const Calibration& calibration);

}  // namespace brrr::measure
