#include "cli/compare.h"

#include <memory>

#include "brrr/tensor/allocator.h"

namespace brrr::cli {

Comparison compare(const TrainOptions& options,
                   const std::function<void(const std::string& what)>& progress) {
  const Device device = options.toy.device;
  Comparison result;
  std::vector<std::unique_ptr<Training>> trainings;
  std::vector<measure::Batch> batches;
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    progress(name_of(mode));
    const std::int64_t live_before = memory_stats(device).live;
    Side side;
    side.options = options;
    side.options.mode = mode;
    trainings.push_back(std::make_unique<Training>(side.options));
    Training& training = *trainings.back();
    side.losses = train_steps(training, options.steps);
    side.steps_done = options.steps;
    side.cost = training.cost();
    side.cost->peak_bytes -= live_before;
    side.compiled = training.compiled();
    batches.push_back(measure::synchronized_batch(device, [&training] { training.step(); }));
    result.sides.push_back(std::move(side));
  }
  for (const Side& side : result.sides) {
    const std::optional<std::size_t> at = first_not_finite(side.losses);
    if (at) result.divergence = std::min(*at, result.divergence.value_or(*at));
  }
  result.disagreement = first_difference(result.sides[0].losses, result.sides[1].losses);

  progress("timing");
  const auto [eager, graph] = measure::time_both(batches[0], batches[1], sampling_of(options));
  result.sides[0].step = eager;
  result.sides[1].step = graph;
  if (device.is_cpu()) return result;
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    Side& side = result.sides[i];
    const auto step = [&training = *trainings[i]] { training.step(); };
    const long calls = measure::calls_in_queue(side.compiled ? 1 : side.cost->kernels);
    constexpr int kSamples = 21;
    side.host = measure::time_host(device, step, calls, kSamples);
    side.device = measure::time_queued(device, step, calls, kSamples);
  }
  return result;
}

}  // namespace brrr::cli
