// Gathers the evidence for the verdict on a step: timings, costs, the state of the card, a
// timeline.
#include "brrr/measure/diagnose.h"

#include <algorithm>
#include <cmath>

#include "brrr/measure/eager_calls.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/runtime.h"

namespace brrr::measure {

namespace {

// What the step's own code takes while no kernel runs is added to the predictions. A small part is
// overhead: brrr's headers are inlined into the program.
void find_user_code(Device device, const std::function<void()>& step, Evidence& evidence) {
  constexpr double kLeast = 0.05, kSeconds = 0.1;
  const Timing& busy = device.is_cpu() ? *evidence.in_kernels : *evidence.queued;
  const double idle = std::max(0.0, 1 - busy.median / evidence.step.median);
  if (idle < kLeast) return;
  const double calls = std::clamp(0.01 / evidence.step.median, 1.0, 1e3);
  evidence.user = user_code_in(
      [&, batch = synchronized_batch(device, step)] { batch(std::lround(calls)); }, kSeconds);
  evidence.user.share = std::min(evidence.user.share, idle);
  if (evidence.user.share < kLeast) evidence.user = {.problem = evidence.user.problem};
  evidence.cost.user_ps = std::lround(evidence.user.share * evidence.step.median * 1e12);
  evidence.cost.predicted.overhead_ps += evidence.cost.user_ps;
  evidence.cost.predicted_at_timed_speed.overhead_ps += evidence.cost.user_ps;
}

}  // namespace

void time_device(Device device, const std::function<void()>& step, int samples,
                 Evidence& evidence) {
  if (device.is_cpu()) {
    constexpr double kSampleSeconds = 2e-3;
    const double calls = std::clamp(kSampleSeconds / evidence.step.median, 1.0, 1e4);
    Timing kernels = share_in_kernels(step, std::lround(calls), samples);
    for (double* const part : {&kernels.median, &kernels.least, &kernels.most})
      *part *= evidence.step.median;
    evidence.in_kernels = kernels;
    find_user_code(device, step, evidence);
    return;
  }
  const bool replayed = evidence.mode != Mode::eager;
  const long calls = calls_in_queue(replayed ? 1 : evidence.cost.kernels);
  evidence.host = time_host(device, step, calls, samples);
  evidence.queued = time_queued(device, step, calls, samples);
  if (evidence.queued) find_user_code(device, step, evidence);
}

void add_timeline(const Timeline& timeline, Evidence& evidence) {
  if (timeline.device != evidence.device) {
    fail("[diagnose] expected a timeline of {}, got one of {}", to_string(evidence.device),
         to_string(timeline.device));
  }
  if (timeline.gpu)
    evidence.gpu = evidence.gpu ? worse_of(*evidence.gpu, *timeline.gpu) : *timeline.gpu;
  evidence.missing = timeline.missing;
  if (timeline.spans.empty() && timeline.missing.empty())
    evidence.missing.emplace_back("it has no spans of the device");
  evidence.perturbation = timeline.perturbation();
  evidence.occupancy = occupancy_of(timeline);
}

Evidence gather(Device device, const std::function<void()>& step, const DiagnoseOptions& options) {
  if (!step) fail("[diagnose] expected a step, got an empty function");
  require_device(device, "diagnose");
  constexpr int kSamples = 21;
  Evidence evidence{.device = device};
  for (int i = 0; i < 2; ++i) step();  // a compiled step is captured in the second call
  evidence.cost = cost_of_step(device, step);
  evidence.mode = mode_of(evidence.cost);
  if (device.is_cuda()) evidence.gpu = gpu_state(device);
  const auto [timing, calls] =
      time_both(synchronized_batch(device, step), small_calls(device), options.sampling);
  evidence.step = timing;
  predict_at(host_slowdown(calls, *graph::ceilings_of(device)), device, evidence.cost);
  time_device(device, step, kSamples, evidence);
  evidence.drift = ceilings_drift(device);
  if (device.is_cuda()) evidence.gpu = worse_of(*evidence.gpu, gpu_state(device));
  if (options.timeline) add_timeline(*options.timeline, evidence);
  evidence.alternatives = options.alternatives;
  return evidence;
}

Diagnosis diagnose(Device device, const std::function<void()>& step,
                   const DiagnoseOptions& options) {
  return judge(gather(device, step, options));
}

}  // namespace brrr::measure
