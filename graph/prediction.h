// The time of a replay, predicted from the costs of its kernels and the ceilings of its device.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <brrr/graph/ceilings.h>
#include <brrr/graph/lower.h>
#include <brrr/graph/step_report.h>

namespace brrr::graph {

struct Prediction {
  std::shared_ptr<const Ceilings> ceilings;
  std::vector<KernelTime> kernels;  // of each launch
  StepTime step;
  Roofline roofline;
};

// On the CPU launches run one after another. On CUDA a replay takes as long as its longest chain of
// dependences, and no less than the device needs for all of its work. `bytes_touched`: the memory
// that the step reads or writes.
Prediction predict(std::span<const Launch> launches, const Plan& plan, Device device,
                   std::int64_t bytes_touched);

// The launches of a prediction, for reports.
std::vector<LaunchCost> describe_launches(std::span<const Launch> launches,
                                          const Prediction& prediction);
// "23.1 us: 20 % overhead, 9 % bandwidth, 71 % compute".
std::string to_string(const StepTime& step);
// "calibrated" or "default".
const char* name_of_origin(const Ceilings& ceilings);

}  // namespace brrr::graph
