// Detects disturbances of measurements on a GPU: other processes, and reasons for a slowed clock.
// Facts that NVML does not report are listed as unknown, and never taken for undisturbed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <brrr/tensor/device.h>

namespace brrr::measure {

// The state of a GPU as the driver's management library (NVML) reports it.
struct GpuState {
  std::vector<std::string> unavailable;  // facts that NVML does not report, with reasons
  std::optional<int> processes = {};     // visible processes that compute on the GPU
  std::int64_t clock_mhz = 0;            // of the multiprocessors; 0: unknown
  std::vector<std::string> slowed_by{};  // "thermal slowdown"
};
GpuState gpu_state(Device device);

// Combines the states before and after a measurement: the disturbances of either.
GpuState worse_of(const GpuState& before, const GpuState& after);

// What disturbs measurements on a card in this state, a line each.
std::vector<std::string> disturbances(const GpuState& gpu);
// What could not be checked, a line each.
std::vector<std::string> not_checked(const GpuState& gpu);

}  // namespace brrr::measure
