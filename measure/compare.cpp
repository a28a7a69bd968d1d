// Compares steps: makes each, runs it for its losses, times all in turn, and gathers the evidence
// for their verdicts.
#include "brrr/measure/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "brrr/graph/ceilings.h"
#include "brrr/measure/bench.h"
#include "brrr/measure/checks.h"
#include "brrr/measure/eager_calls.h"
#include "brrr/measure/kernel_groups.h"
#include "brrr/measure/launch_times.h"
#include "brrr/measure/replays.h"
#include "brrr/measure/text.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/cpu_toolchain.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/allocator.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::measure {
namespace {

// What is to be made: the side has its name.
struct Maker {
  Side side;
  std::function<Step()> make;
  std::function<Step()> doubled = {};
  // Its policy is a budget that saves half as much as the side before it, under `full`.
  bool half_of_full = false;
};

Maker maker_of(Mode mode, Remat remat, const MakeStep& make, const CompareOptions& options) {
  Maker maker;
  const bool keeps_all = remat.kind() == Remat::Kind::none;
  maker.side.mode = mode;
  maker.side.remat = name_of(remat);
  maker.side.name =
      keeps_all ? name_of(mode) : fmt::format("{} {}", name_of(mode), maker.side.remat);
  maker.make = [&make, mode, remat] { return make(mode, remat); };
  if (options.doubled)
    maker.doubled = [&doubled = options.doubled, mode, remat] { return doubled(mode, remat); };
  return maker;
}

std::vector<Maker> makers_of(const MakeStep& make, const CompareOptions& options) {
  std::vector<Maker> makers = {maker_of(Mode::eager, Remat::none(), make, options)};
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    if (!options.all_policies) {
      makers.push_back(maker_of(mode, options.remat, make, options));
      continue;
    }
    for (const Remat remat : {Remat::none(), Remat::min_cut(), Remat::full()})
      makers.push_back(maker_of(mode, remat, make, options));
    Maker& half = makers.emplace_back(maker_of(mode, Remat::full(), make, options));
    half.half_of_full = true;
  }
  return makers;
}

// None: `full` saves nothing.
std::optional<Remat> half_of(const Side& full) {
  if (!full.compiled) return std::nullopt;
  const auto kept = static_cast<double>(full.compiled->arena_bytes_without_remat);
  const double least =
      kept > 0 ? std::min(1.0, static_cast<double>(full.compiled->arena_bytes) / kept) : 1;
  const double fraction = std::ceil((1 + least) * 50) / 100;
  return fraction < 1 ? std::optional(Remat::budget(fraction)) : std::nullopt;
}

// Thrown to end a comparison.
struct Stopped {};

class Comparing {
 public:
  // `make`: empty for candidates.
  Comparing(std::string name, const MakeStep& make, const CompareOptions& options)
      : make_(make), options_(options), sampling_(sampling_for(options.seconds)) {
    sampling_.stop = options.stop;
    result_.name = std::move(name);
    result_.describes = options.describes;
    result_.facts = options.facts;
    result_.rounding = options.rounding;
    if (options.device) result_.device = *options.device;
  }

  Comparison run(std::vector<Maker> makers);

 private:
  Device device() const { return result_.device; }
  std::function<void()> call_of(std::size_t i) const {
    return [&step = steps_[i]] { step(); };
  }

  void stop_if_asked() const {
    if (options_.stop && options_.stop()) throw Stopped();
  }
  // "2 of 5: graph"
  void show(const std::string& what) {
    at_ = fmt::format("{} of {}: {}", ++phase_, phases_, what);
    options_.progress(at_);
    stop_if_asked();
  }
  void run_all(std::vector<Maker> makers);
  void finish_early();
  void add(Maker maker);
  std::vector<double> losses_of(const Step& step);
  void measure(Side& side, const Step& step);
  void compare_losses();
  std::optional<std::size_t> replay_of_eager() const;
  void predict_eager();
  void time_steps();
  Evidence evidence_of(std::size_t i);
  void add_alternatives(const Side& side, Evidence& evidence) const;
  void gather();
  void double_batches();
  std::vector<Variation> variations_of(const Side& side) const;
  void try_variations();
  void advise();
  void record(std::size_t i);
  void judge_all();

  const MakeStep make_;
  const CompareOptions& options_;
  Sampling sampling_;
  Comparison result_;
  DType dtype_ = f32;        // of the losses
  std::vector<Step> steps_;  // of the sides
  std::vector<std::function<Step()>> doubled_;
  std::vector<std::int64_t> own_live_;  // bytes that each has between its steps
  std::vector<Evidence> evidence_;
  std::size_t phase_ = 0, phases_ = 0;
  std::string at_;             // the phase
  bool same_program_ = false;  // candidates need not compute the same
};

void Comparing::add(Maker maker) {
  show(maker.side.name);
  manual_seed(options_.seed);
  const std::int64_t live_before = memory_stats(device()).live;
  Step step = maker.make();
  if (!step) fail("[compare] expected a step for {}, got none", maker.side.name);
  maker.side.losses = losses_of(step);
  measure(maker.side, step);
  maker.side.cost->peak_bytes -= live_before;
  own_live_.push_back(memory_stats(device()).live - live_before);
  steps_.push_back(std::move(step));
  doubled_.push_back(std::move(maker.doubled));
  result_.sides.push_back(std::move(maker.side));
}

// The first step tells the device and the type, where the options do not.
std::vector<double> Comparing::losses_of(const Step& step) {
  Losses losses;
  for (std::int64_t i = 0; i < options_.steps; ++i) {
    stop_if_asked();
    Tensor loss;
    if (i == 0 && steps_.empty() && !options_.device) {
      result_.device = device_of([&] { loss = step(); });
    } else {
      loss = step();
    }
    if (!loss.defined()) continue;
    if (loss.numel() != 1)
      fail("[compare] expected a step to return its loss, of one element, got {}", loss.describe());
    dtype_ = loss.dtype();
    losses.add(reshape(loss, {}));
  }
  return std::move(losses.values());
}

void Comparing::measure(Side& side, const Step& step) {
  const std::function<void()> once = [&step] { step(); };
  for (int i = 0; i < 2; ++i) step();  // the second one is captured
  const std::vector<ReplayedEntry> replayed = replays_in(once);
  for (const ReplayedEntry& each : replayed) each.step->measure_kernels();
  side.cost = cost_of_step(device(), once);
  side.mode = mode_of(*side.cost);
  if (replayed.empty()) return;
  side.compiled = side.cost->replayed.front();
  for (const ReplayedEntry& each : replayed) {
    const std::vector<core::LaunchCost> launches = each.launches();
    side.launches.insert(side.launches.end(), launches.begin(), launches.end());
  }
  if (side.compiled->arena_bytes_without_remat > 0)
    side.live = replayed.front().step->live_bytes(replayed.front().entry);
}

void Comparing::compare_losses() {
  for (const Side& side : result_.sides) {
    const std::optional<std::size_t> at = first_not_finite(side.losses);
    if (at) result_.divergence = std::min(*at, result_.divergence.value_or(*at));
  }
  for (Side& side : result_.sides) {
    const double bound = loss_bound(device(), options_.dtype.value_or(dtype_), side.mode,
                                    side.mode == Mode::fused ? options_.rounding : Rounding::eager);
    const bool is_base = &side == &result_.sides.front();
    side.agreement = agreement_of(result_.sides.front().losses, side.losses,
                                  is_base ? 0 : options_.tolerance.value_or(bound));
  }
}

// The side that replays the calls of the eager one, and computes nothing again.
std::optional<std::size_t> Comparing::replay_of_eager() const {
  for (std::size_t i = 0; same_program_ && i < result_.sides.size(); ++i) {
    const Side& side = result_.sides[i];
    if (side.mode == Mode::graph && side.compiled->recomputed_calls == 0) return i;
  }
  return std::nullopt;
}

void Comparing::predict_eager() {
  const auto replay = replay_of_eager();
  if (!replay) return;
  for (Side& side : result_.sides) {
    if (!side.compiled) predict_from(result_.sides[*replay].launches, device(), *side.cost);
  }
}

// Times all steps alternately with small calls, whose times give the host's speed meanwhile.
void Comparing::time_steps() {
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < steps_.size(); ++i)
    batches.push_back(synchronized_batch(device(), call_of(i)));
  batches.push_back(small_calls(device()));
  const std::vector<Timing> timings = time_all(batches, sampling_);
  const double slowdown = host_slowdown(timings.back(), *graph::ceilings_of(device()));
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    result_.sides[i].step = timings[i];
    predict_at(slowdown, device(), *result_.sides[i].cost);
  }
}

Evidence Comparing::evidence_of(std::size_t i) {
  constexpr int kSamples = 21;
  Side& side = result_.sides[i];
  Evidence evidence{.device = device(), .mode = side.mode, .step = *side.step, .cost = *side.cost};
  time_device(device(), call_of(i), kSamples, evidence);
  side.host = evidence.host;
  side.device = evidence.queued;
  side.cost = evidence.cost;
  return evidence;
}

void Comparing::add_alternatives(const Side& side, Evidence& evidence) const {
  evidence.ruled_out = {Mode::graph, Mode::fused};
  for (const Side& other : result_.sides) {
    if (!is_faster(*other.step, *side.step)) continue;
    core::StepTime predicted = other.cost->predicted_at_timed_speed;
    predicted.overhead_ps += side.cost->user_ps - other.cost->user_ps;  // no mode changes own code
    evidence.alternatives.push_back({other.name, predicted});
    std::erase(evidence.ruled_out, other.mode);
  }
}

void Comparing::gather() {
  std::optional<GpuState> gpu;
  if (device().is_cuda()) gpu = gpu_state(device());
  time_steps();
  for (std::size_t i = 0; i < steps_.size(); ++i) evidence_.push_back(evidence_of(i));
  if (gpu) gpu = worse_of(*gpu, gpu_state(device()));
  const std::vector<std::string> drift = ceilings_drift(device());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    evidence_[i].gpu = gpu;
    evidence_[i].drift = drift;
    add_alternatives(result_.sides[i], evidence_[i]);
  }
}

// Records a timeline. Called after all timings, since CUPTI may slow a process down from its first
// use.
void Comparing::record(std::size_t i) {
  // Of a short step more are recorded, so that the median of a kernel's times is undisturbed.
  constexpr double kSeconds = 0.05, kUntracedSeconds = 0.2;
  Side& side = result_.sides[i];
  Evidence& evidence = evidence_[i];
  const auto in = [&](double seconds, int most) {
    return std::clamp(static_cast<int>(seconds / side.step->median), 3, most);
  };
  const auto again = [&] {
    const std::int64_t of_others = memory_stats(device()).live - own_live_[i];
    side.timeline =
        record_timeline(device(), call_of(i),
                        {.steps = in(kSeconds, 9), .untraced_steps = in(kUntracedSeconds, 10)});
    for (MemorySample& sample : side.timeline->memory) sample.bytes -= of_others;
  };
  again();
  // Recording hardly slows long steps on the CPU, so other work on the machine did.
  for (int n = 0; n < 2 && device().is_cpu() && side.timeline->perturbation() > kMostPerturbation;
       ++n)
    again();
  const Timeline& timeline = *side.timeline;
  if (timeline.has_kernels()) {
    add_timeline(timeline, evidence);
  } else {
    evidence.without_kernels = true;
    evidence.without_timeline =
        device().is_cpu()
            ? "on the CPU kernels run inside of the host's calls, which brrr profile distinguishes"
            : fmt::format("{}", fmt::join(timeline.missing, "; "));
  }
  // Recording slows kernels down on the CPU, but not on a GPU.
  const bool usable =
      device().is_cpu() ? timeline.perturbation() <= kMostPerturbation : timeline.has_kernels();
  if (usable && timeline.is_complete() && side.cost->replayed.size() == 1)
    side.launch_seconds = launch_seconds(timeline, side.launches.size());
  evidence.kernels = measured_kernels(side);
}

// Records the idle gaps of each mode, and judges with them.
void Comparing::judge_all() {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    show("recording " + result_.sides[i].name);
    record(i);
  }
  // Eager calls run the kernels of the replay.
  const auto replay = replay_of_eager();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (replay && !result_.sides[i].compiled) evidence_[i].kernels = evidence_[*replay].kernels;
    result_.sides[i].diagnosis = judge(evidence_[i]);
  }
}

// What may help the step, by its device and by what bounds it.
std::vector<Variation> Comparing::variations_of(const Side& side) const {
  constexpr double kMuch = 0.2;  // of the step
  const auto with = [&, mode = side.mode](const MakeStep& make, Remat remat) {
    return [this, &make, mode, remat] {
      manual_seed(options_.seed);
      return make(mode, remat);
    };
  };
  const Remat remat = remat_of(side.remat);
  const std::function<Step()> same = with(make_, remat);
  std::vector<Variation> list;
  const auto f32_flops =
      side.cost->product_flops[static_cast<std::size_t>(graph::ProductType::f32)];
  if (device().is_cuda() && f32_flops > 0 && matmul_precision() == Precision::full)
    list.push_back(with_tf32(same));
  const int used = num_threads(), all = core::available_processors();
  if (device().is_cpu() && used > 1) list.push_back(with_threads(1, same));
  if (device().is_cpu() && used < all) list.push_back(with_threads(all, same));
  const bool keeps_all = remat.kind() == Remat::Kind::none && !options_.all_policies;
  const auto moving = static_cast<double>(side.cost->roofline.moving_ps) * 1e-12;
  if (side.compiled && keeps_all && moving > kMuch * side.step->median)
    list.push_back({.name = side.name + " min_cut", .make = with(make_, Remat::min_cut())});
  for (const auto& [name, make] : options_.variations)
    list.push_back({.name = name, .make = with(make, remat)});
  if (options_.doubled) {
    list.push_back({.name = "twice the batch", .make = with(options_.doubled, remat), .work = 2});
  }
  return list;
}

void Comparing::try_variations() {
  if (!same_program_ || !options_.tries) return;
  constexpr double kMostSeconds = 0.25;
  const Side& side = result_.fastest();
  const auto i = static_cast<std::size_t>(&side - result_.sides.data());
  Sampling sampling = sampling_for(std::min(kMostSeconds, options_.seconds));
  sampling.stop = options_.stop;
  const std::vector<Variation> variations = variations_of(side);
  phases_ += variations.size();
  const auto tried = [&](const Variation& each) {
    show(fmt::format("{} with {}", side.name, each.name));
    return try_variation(each, device(), call_of(i), *side.step, sampling);
  };
  for (const Variation& each : variations) result_.tried.push_back(tried(each));
  // What helps in one round may have been other work on the machine.
  for (std::size_t k = 0; k < variations.size(); ++k) {
    Tried& first = result_.tried[k];
    if (!first.helps()) continue;
    ++phases_;
    const Tried again = tried(variations[k]);
    if (!again.failure.empty() || again.gain() < first.gain()) first = again;
  }
  std::ranges::stable_sort(result_.tried, std::ranges::greater(), [](const Tried& each) {
    return each.failure.empty() ? each.gain() : 0;
  });
}

// Advice by what was measured; what was not tried is said to be derived.
void Comparing::advise() {
  const Side& fastest = result_.fastest();
  std::vector<std::string> helpful, vain;
  for (const Tried& each : result_.tried)
    (each.helps() ? helpful : vain).push_back(to_string(each));
  for (Side& side : result_.sides) {
    Diagnosis& found = side.diagnosis;
    if (!found.regime) continue;
    const double gain = gain_over(*side.step, found, *fastest.step);
    if (gain > 1) {
      found.advice = fmt::format("{} is {:.2f} times as fast, as measured", fastest.name, gain);
    } else if (&side == &fastest && !helpful.empty()) {
      found.advice = fmt::format("{}, as measured", fmt::join(helpful, "; "));
    } else {
      const bool derived =
          vain.empty() || *found.regime == Regime::inefficient || *found.regime == Regime::user;
      found.advice =
          fmt::format("{}{}{}{}", vain.empty() ? "" : "nothing that was tried helps by 5 %: ",
                      fmt::join(vain, "; "), !vain.empty() && derived ? "; " : "",
                      derived ? found.advice + " (derived, not tried)" : "");
    }
  }
}

// Each step at twice the batch, timed in turn with the step.
void Comparing::double_batches() {
  struct Doubled {
    StepCost cost;
    Timing once, twice;
  };
  std::vector<Doubled> all;
  for (std::size_t i = 0; i < steps_.size() && doubled_[i] && options_.check_doubled; ++i) {
    show(result_.sides[i].name + " at twice the batch");
    manual_seed(options_.seed);
    const Step step = doubled_[i]();
    const std::function<void()> call = [&step] { step(); };
    for (int warm = 0; warm < 2; ++warm) step();
    const StepCost cost = cost_of_step(device(), call);
    const auto [once, twice] = time_both(synchronized_batch(device(), call_of(i)),
                                         synchronized_batch(device(), call), sampling_);
    all.push_back({cost, once, twice});
  }
  judge_all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    Side& side = result_.sides[i];
    side.doubling =
        judge_doubling(side.diagnosis, *side.cost, all[i].cost, all[i].once, all[i].twice);
    qualify(side.diagnosis, *side.doubling);
  }
}

void Comparing::run_all(std::vector<Maker> makers) {
  phases_ = (options_.doubled && options_.check_doubled ? 3 : 2) * makers.size() + 1;
  for (Maker& maker : makers) {
    if (maker.half_of_full) {
      const std::optional<Remat> half = half_of(result_.sides.back());
      if (!half) {
        ++phase_;
        continue;
      }
      maker = maker_of(maker.side.mode, *half, make_, options_);
    }
    add(std::move(maker));
  }
  compare_losses();
  predict_eager();
  show("timing");
  gather();
  try_variations();
  double_batches();
}

// Judges what was made by what is known of it, and by the times of a few steps if there are none.
void Comparing::finish_early() {
  result_.interrupted = at_;
  if (steps_.empty()) fail("[compare] interrupted at {}, before a step was measured", at_);
  if (!result_.sides.back().step) {
    sampling_ = {.samples = 1, .sample_seconds = 0, .budget_seconds = 0};
    compare_losses();
    predict_eager();
    time_steps();
  }
  for (std::size_t i = evidence_.size(); i < steps_.size(); ++i) {
    const Side& side = result_.sides[i];
    Evidence& evidence = evidence_.emplace_back(
        Evidence{.device = device(), .mode = side.mode, .step = *side.step, .cost = *side.cost});
    evidence.further_problems.push_back("interrupted before its kernels were timed");
  }
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    evidence_[i].without_timeline = "interrupted before it was recorded";
    result_.sides[i].diagnosis = judge(evidence_[i]);
  }
}

Comparison Comparing::run(std::vector<Maker> makers) {
  same_program_ = make_ != nullptr;
  try {
    run_all(std::move(makers));
  } catch (const Stopped&) {
    finish_early();
  } catch (const jit::Interrupted&) {
    finish_early();
  }
  advise();
  return std::move(result_);
}

}  // namespace

Comparison compare(std::string name, const MakeStep& make, const CompareOptions& options) {
  if (!make) fail("[compare] expected a function that makes a step, got none");
  return Comparing(std::move(name), make, options).run(makers_of(make, options));
}

Comparison compare(std::string name, std::vector<Candidate> candidates,
                   const CompareOptions& options) {
  if (candidates.empty()) fail("[compare] expected at least one candidate, got none");
  std::vector<Maker> makers;
  for (Candidate& each : candidates) {
    if (!each.make) fail("[compare] expected a function that makes {}, got none", each.name);
    Maker& maker = makers.emplace_back();
    maker.side.name = std::move(each.name);
    maker.make = std::move(each.make);
  }
  return Comparing(std::move(name), {}, options).run(std::move(makers));
}

const Side& Comparison::fastest() const {
  return *std::ranges::min_element(sides, {}, [](const Side& side) { return side.step->median; });
}

const Side* Comparison::disagreement() const {
  const auto found = std::ranges::find_if(
      sides, [](const Side& side) { return side.agreement.broken_at.has_value(); });
  return found == sides.end() ? nullptr : &*found;
}

std::vector<ComparedMode> Comparison::modes() const {
  std::vector<ComparedMode> modes;
  for (const Side& side : sides)
    modes.push_back({side.name, side.cost->predicted, *side.step, side.diagnosis});
  return modes;
}

std::string Comparison::problem() const {
  const auto loss_of = [](const Side& side, std::size_t step) {
    return step < side.losses.size()
               ? fmt::format("{} {}", side.name, without_sign_of_nan(side.losses[step]))
               : fmt::format("no loss of {}", side.name);
  };
  if (divergence) {
    std::vector<std::string> losses;
    for (const Side& side : sides) losses.push_back(loss_of(side, *divergence));
    return fmt::format("[compare] expected finite losses, got {} at step {}: the training diverged",
                       fmt::join(losses, ", "), *divergence);
  }
  if (const Side* const side = disagreement()) {
    const std::size_t step = *side->agreement.broken_at;
    return fmt::format("[compare] expected the losses of {}{}, got {} and {} at step {}",
                       sides.front().name,
                       side->agreement.is_of_bits()
                           ? ""
                           : fmt::format(" within {:g} of the largest", side->agreement.bound),
                       loss_of(sides.front(), step), loss_of(*side, step), step);
  }
  return {};
}

Sampling sampling_for(double seconds) {
  const double sample = std::min(0.02, seconds / 8);
  return {.samples = std::max(60, static_cast<int>(seconds / sample)),
          .sample_seconds = sample,
          .budget_seconds = seconds};
}

}  // namespace brrr::measure
