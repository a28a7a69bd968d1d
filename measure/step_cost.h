// The cost of a step: kernels, FLOPs, bytes moved, peak memory.
#pragma once

#include <cstdint>
#include <functional>

#include <brrr/dispatch/cost.h>
#include <brrr/graph/step_time.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

struct StepCost : Cost {
  std::int64_t kernels = 0;     // launches on CUDA, op calls with a kernel on the CPU
  std::int64_t peak_bytes = 0;  // of all live memory, allocated before the step or in it
  // Of the calls made eagerly, by the ceilings of the device.
  StepTime predicted;
  bool calibrated = false;
};

// Runs the step once.
StepCost cost_of_step(Device device, const std::function<void()>& step);

// CUDA calls that launch a kernel while `work` runs.
std::int64_t cuda_launches(const std::function<void()>& work);

}  // namespace brrr::measure
