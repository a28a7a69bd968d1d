#include "cli/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "brrr/graph/ceilings.h"
#include "brrr/measure/bench.h"
#include "brrr/measure/eager_calls.h"
#include "brrr/measure/launch_times.h"
#include "brrr/tensor/allocator.h"

namespace brrr::cli {

namespace {

// A budget that saves half as much memory as `full`, the policy before it in the list.
constexpr const char* kHalfOfFull = "budget=";
constexpr const char* kWholeBudget = "budget=1.00";

std::string half_of(const Side& full) {
  const auto kept = static_cast<double>(full.compiled->arena_bytes_without_remat);
  const double least =
      kept > 0 ? std::min(1.0, static_cast<double>(full.compiled->arena_bytes) / kept) : 1;
  return fmt::format("{}{:.2f}", kHalfOfFull, std::ceil((1 + least) * 50) / 100);
}

// One result for each mode, and for compiled modes one for each policy of rematerialization.
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
      for (const char* remat : {"none", "min_cut", "full", kHalfOfFull}) add(mode, remat);
    }
  }
  return sides;
}

// FLOPs of launches with a matrix product, by the type that it is computed in.
measure::ProductFlops product_flops_of(const std::vector<LaunchCost>& launches) {
  measure::ProductFlops flops{};
  for (const LaunchCost& each : launches) {
    const auto type = std::ranges::find(graph::kProductTypes, each.product);
    if (type != graph::kProductTypes.end())
      flops[static_cast<std::size_t>(type - graph::kProductTypes.begin())] += each.flops;
  }
  return flops;
}

// Times all steps alternately with small calls, whose times give the host's speed meanwhile.
void time_steps(Comparison& comparison, std::vector<measure::Batch> batches) {
  const TrainOptions& options = comparison.sides.front().options;
  const Device device = options.toy.device;
  batches.push_back(measure::small_calls(device));
  const std::vector<measure::Timing> timings = measure::time_all(batches, sampling_of(options));
  const double slowdown = measure::host_slowdown(timings.back(), *graph::ceilings_of(device));
  for (std::size_t i = 0; i < comparison.sides.size(); ++i) {
    Side& side = comparison.sides[i];
    side.step = timings[i];
    if (!side.compiled) measure::predict_at(slowdown, device, *side.cost);
  }
}

// An eager step runs the kernels of its replay, where that computes nothing again.
void predict_eager(Comparison& comparison) {
  Side &eager = comparison.sides[0], &graph = comparison.sides[1];
  if (graph.options.remat == "none")
    measure::predict_from(graph.launches, eager.options.toy.device, *eager.cost);
}

void compare_losses(Comparison& comparison) {
  for (const Side& side : comparison.sides) {
    const std::optional<std::size_t> at = measure::first_not_finite(side.losses);
    if (at) comparison.divergence = std::min(*at, comparison.divergence.value_or(*at));
  }
  for (Side& side : comparison.sides) {
    const TrainOptions& o = side.options;
    side.agreement =
        measure::agreement_of(comparison.sides[0].losses, side.losses,
                              measure::loss_bound(o.toy.device, o.toy.dtype, o.mode, o.rounding));
  }
}

// Measures further evidence for the verdict on a step.
measure::Evidence evidence_of(Side& side, Training& training, const std::vector<Side>& sides) {
  constexpr int kSamples = 21;
  const Device device = side.options.toy.device;
  measure::Evidence evidence{.device = device, .step = *side.step, .cost = *side.cost};
  if (side.compiled) evidence.mode = side.compiled->mode;
  measure::time_device(
      device, [&training] { training.step(); }, kSamples, evidence);
  side.host = evidence.host;
  side.device = evidence.queued;
  evidence.ruled_out = {Mode::graph, Mode::fused};
  for (const Side& other : sides) {
    if (!measure::is_faster(*other.step, *side.step)) continue;
    evidence.alternatives.push_back({name_of(other), other.cost->predicted_at_timed_speed});
    std::erase(evidence.ruled_out, other.options.mode);
  }
  return evidence;
}

// Untraced steps of a timeline, and approximately all of its steps.
constexpr int kUntracedSteps = 10, kTimelineSteps = 20;

// The expected time to record timelines of all modes.
double timeline_seconds(const Comparison& comparison) {
  double seconds = 0;
  for (const Side& side : comparison.sides) seconds += kTimelineSteps * side.step->median;
  return seconds;
}

// Records a timeline. Called after all timings, since CUPTI may slow a process down from its first
// use.
void record_timeline(Side& side, Training& training, measure::Evidence& evidence) {
  const measure::Timeline& timeline = side.timeline.emplace(
      measure::record_timeline(evidence.device, [&training] { training.step(); },
                               {.steps = 3, .untraced_steps = kUntracedSteps}));
  if (timeline.has_kernels()) {
    measure::add_timeline(timeline, evidence);
  } else {
    evidence.without_kernels = true;
    evidence.without_timeline =
        evidence.device.is_cpu()
            ? "on the CPU kernels run inside of the host's calls, which brrr profile distinguishes"
            : fmt::format("{}", fmt::join(timeline.missing, "; "));
  }
  // Recording slows kernels down on the CPU, but not on a GPU.
  const bool usable = evidence.device.is_cpu()
                          ? timeline.perturbation() <= measure::kMostPerturbation
                          : timeline.has_kernels();
  if (usable && timeline.is_complete())
    side.launch_seconds = measure::launch_seconds(timeline, side.launches.size());
}

// Records the idle gaps of each mode, and judges again with them.
void record_timelines(Comparison& comparison, std::span<const std::unique_ptr<Training>> trainings,
                      std::span<measure::Evidence> evidence, bool always,
                      const std::function<void(const std::string& what)>& progress) {
  constexpr double kMostSeconds = 1;
  const double seconds = timeline_seconds(comparison);
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    Side& side = comparison.sides[i];
    if (always || seconds <= kMostSeconds) {
      progress(name_of(side) + ", recorded");
      record_timeline(side, *trainings[i], evidence[i]);
    } else {
      evidence[i].without_timeline =
          fmt::format("recording all modes takes about {} s, so it needs --timeline",
                      measure::number_text(seconds));
    }
    side.diagnosis = measure::judge(evidence[i]);
  }
}

// The same mode at twice the batch, whose timings alternate with the step's.
struct Doubled {
  measure::StepCost cost;
  measure::Timing once, twice;
};
Doubled double_batch_of(const Side& side, Training& training) {
  TrainOptions options = side.options;
  options.toy.batch *= 2;
  Training doubled(options);
  const measure::StepCost cost = doubled.cost();
  const Device device = options.toy.device;
  const auto [once, twice] = measure::time_both(
      measure::synchronized_batch(device, [&training] { training.step(); }),
      measure::synchronized_batch(device, [&doubled] { doubled.step(); }), sampling_of(options));
  return {cost, once, twice};
}

}  // namespace

std::string name_of(const Side& side) {
  const std::string& remat = side.options.remat;
  return name_of(side.options.mode) + (remat == "none" ? "" : " " + remat);
}

std::vector<measure::ComparedMode> modes_of(const Comparison& comparison) {
  std::vector<measure::ComparedMode> modes;
  for (const Side& side : comparison.sides)
    modes.push_back({name_of(side), side.cost->predicted, *side.step, side.diagnosis});
  return modes;
}

Comparison compare(const TrainOptions& options, const CompareOptions& further,
                   const std::function<void(const std::string& what)>& progress) {
  const Device device = options.toy.device;
  Comparison result;
  std::vector<std::unique_ptr<Training>> trainings;
  std::vector<measure::Batch> batches;
  for (Side& side : sides_of(options)) {
    if (side.options.remat == kHalfOfFull) {
      side.options.remat = half_of(result.sides.back());
      if (side.options.remat == kWholeBudget) continue;  // `full` saves nothing
    }
    progress(name_of(side));
    const std::int64_t live_before = memory_stats(device).live;
    trainings.push_back(std::make_unique<Training>(side.options));
    Training& training = *trainings.back();
    side.losses = train_steps(training, options.steps);
    side.steps_done = options.steps;
    training.measure_kernels();
    side.cost = training.cost();
    side.cost->peak_bytes -= live_before;
    side.compiled = training.compiled();
    if (side.compiled) {
      side.launches = training.compiled_step().launches();
      side.cost->product_flops = product_flops_of(side.launches);
      if (side.options.remat != "none") side.live = training.compiled_step().live_bytes();
    }
    batches.push_back(measure::synchronized_batch(device, [&training] { training.step(); }));
    result.sides.push_back(std::move(side));
  }
  compare_losses(result);
  predict_eager(result);

  progress("timing");
  std::optional<measure::GpuState> gpu;
  if (device.is_cuda()) gpu = measure::gpu_state(device);
  time_steps(result, std::move(batches));
  std::vector<measure::Evidence> evidence;
  for (std::size_t i = 0; i < trainings.size(); ++i)
    evidence.push_back(evidence_of(result.sides[i], *trainings[i], result.sides));
  if (gpu) gpu = measure::worse_of(*gpu, measure::gpu_state(device));
  const std::vector<std::string> drift = measure::ceilings_drift(device);
  for (measure::Evidence& each : evidence) {
    each.gpu = gpu;
    each.drift = drift;
  }
  std::vector<Doubled> doubled;
  for (std::size_t i = 0; further.double_batch && i < trainings.size(); ++i) {
    progress(name_of(result.sides[i]) + " at twice the batch");
    doubled.push_back(double_batch_of(result.sides[i], *trainings[i]));
  }
  record_timelines(result, trainings, evidence, further.timeline, progress);
  for (std::size_t i = 0; i < doubled.size(); ++i) {
    Side& side = result.sides[i];
    side.doubling = measure::judge_doubling(side.diagnosis, *side.cost, doubled[i].cost,
                                            doubled[i].once, doubled[i].twice);
    measure::qualify(side.diagnosis, *side.doubling);
  }
  return result;
}

}  // namespace brrr::cli
