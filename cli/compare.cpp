#include "cli/compare.h"

#include <memory>

#include "brrr/tensor/allocator.h"

namespace brrr::cli {

namespace {

// A side for each mode and, of those that have one, each policy of rematerialization.
std::vector<Side> sides_of(const TrainOptions& options) {
  std::vector<Side> sides;
  const auto add = [&](Mode mode, const std::string& remat) {
    Side& side = sides.emplace_back();
    side.options = options;
    side.options.mode = mode;
    side.options.remat = remat;
    if (mode != Mode::fused) side.options.rounding = Rounding::eager;
  };
  add(Mode::eager, "none");
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    if (options.remat != "all") {
      add(mode, options.remat);
    } else {
      for (const char* remat : {"none", "mincut", "full"}) add(mode, remat);
    }
  }
  return sides;
}

}  // namespace

std::string name_of(const Side& side) {
  const std::string& remat = side.options.remat;
  return name_of(side.options.mode) + (remat == "none" ? "" : " " + remat);
}

Comparison compare(const TrainOptions& options,
                   const std::function<void(const std::string& what)>& progress) {
  const Device device = options.toy.device;
  Comparison result;
  std::vector<std::unique_ptr<Training>> trainings;
  std::vector<measure::Batch> batches;
  for (Side& side : sides_of(options)) {
    progress(name_of(side));
    const std::int64_t live_before = memory_stats(device).live;
    trainings.push_back(std::make_unique<Training>(side.options));
    Training& training = *trainings.back();
    side.losses = train_steps(training, options.steps);
    side.steps_done = options.steps;
    side.cost = training.cost();
    side.cost->peak_bytes -= live_before;
    side.compiled = training.compiled();
    if (side.compiled) {
      side.launches = training.compiled_step().launches();
      if (side.options.remat != "none") side.live = training.compiled_step().live_bytes();
    }
    batches.push_back(measure::synchronized_batch(device, [&training] { training.step(); }));
    result.sides.push_back(std::move(side));
  }
  for (const Side& side : result.sides) {
    const std::optional<std::size_t> at = first_not_finite(side.losses);
    if (at) result.divergence = std::min(*at, result.divergence.value_or(*at));
  }
  for (Side& side : result.sides) {
    side.agreement = agreement_of(result.sides[0].losses, side.losses, loss_bound(side.options));
  }

  progress("timing");
  const std::vector<measure::Timing> timings = measure::time_all(batches, sampling_of(options));
  for (std::size_t i = 0; i < timings.size(); ++i) result.sides[i].step = timings[i];
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
