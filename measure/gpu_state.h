// Whether something disturbs measurements on a GPU: other processes on it, and why its clock is
// slowed. What could not be found out is said, and is not taken for calm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <brrr/tensor/device.h>

namespace brrr::measure {

// What the driver's management library (NVML) says of a GPU.
struct GpuState {
  std::vector<std::string> unavailable;  // what it does not say, with the reason
  std::optional<int> processes = {};     // that compute on it, those that are visible from here
  std::int64_t clock_mhz = 0;            // of the multiprocessors; 0: unknown
  std::vector<std::string> slowed_by{};  // "thermal slowdown"
};
GpuState gpu_state(Device device);

// Of states before and after a measurement: all that disturbs in either.
GpuState worse_of(const GpuState& before, const GpuState& after);

// What disturbs measurements on a card in this state, a line each.
std::vector<std::string> disturbances(const GpuState& gpu);
// What could not be checked, a line each.
std::vector<std::string> not_checked(const GpuState& gpu);

}  // namespace brrr::measure
