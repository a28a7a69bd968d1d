// What a step of any kind asks of the machine: how many kernels, how much arithmetic, how many
// bytes, how much memory.
#pragma once

#include <cstdint>
#include <functional>

#include <brrr/dispatch/cost.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

struct StepCost : Cost {
  std::int64_t kernels = 0;  // on CUDA launches, counted as they are made; else op calls that work
  std::int64_t peak_bytes = 0;  // the most that is live at a time, with what lived before the step
};

// Runs the step once.
StepCost cost_of_step(Device device, const std::function<void()>& step);

// Calls that launch a kernel, made while `work` runs.
std::int64_t cuda_launches(const std::function<void()>& work);

}  // namespace brrr::measure
