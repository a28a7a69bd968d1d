// The time of a replay, predicted from the costs of its kernels and the ceilings of its device.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <brrr/graph/ceilings.h>
#include <brrr/graph/lower.h>
#include <brrr/graph/step_report.h>

namespace brrr::graph {

struct Prediction {
  std::shared_ptr<const Ceilings> ceilings;
  std::vector<KernelTime> kernels, by_ceilings;  // of each launch
  bool measured = false;  // kernels have measured times, except where one could not be timed
  StepTime step, step_by_ceilings;
  Roofline roofline;  // by the ceilings
};

// On the CPU launches run one after another. On CUDA a replay takes as long as its longest chain of
// dependences, and no less than the device needs for all of its work. `bytes_touched`: the memory
// that the step reads or writes.
Prediction predict(std::span<const Launch> launches, const Plan& plan, Device device,
                   std::int64_t bytes_touched);
// Predicts the step again from the times of its kernels, where there is one, in picoseconds.
void use_times(std::span<const std::optional<std::int64_t>> times, std::span<const Launch> launches,
               const Plan& plan, Device device, Prediction& prediction);

// The launches of a prediction, for reports.
std::vector<LaunchCost> describe_launches(const Graph& graph, std::span<const Launch> launches,
                                          const Prediction& prediction);
// "23.1 us: 20 % overhead, 9 % bandwidth, 71 % compute".
std::string to_string(const StepTime& step);
// "predicted by calibrated ceilings: 23.1 us: ...".
std::string prediction_text(const Prediction& prediction);

}  // namespace brrr::graph
