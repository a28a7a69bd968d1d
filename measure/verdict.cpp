// The verdict on a step: derives shares, a regime and advice from the evidence.
//
// On CUDA, the step's time minus that of a queued step is time in which the device waits for the
// host. The device time is divided among launches, bandwidth and compute in predicted proportions.
// A kernel counts as bandwidth or compute by the time that twice its work would add; the rest of
// its time is latency, of a kernel too small to reach the ceilings. What kernels take beyond 1.5
// times their need is neither: they are inefficient. On the CPU, overhead is the time outside of
// kernels, plus the overhead of calls that the kernels' clock includes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "brrr/measure/bench.h"
#include "brrr/measure/diagnose.h"
#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

constexpr double kPicosecond = 1e-12;
// Timings of the same step by two methods differ by more only when the machine was disturbed.
constexpr double kMethods = 1.2;
// Shares that differ by less are reported as a mixture of two regimes.
constexpr double kMixed = 0.10;
// Predictions that differ by less count as equal.
constexpr double kWorthwhile = 0.95;

double seconds_of(std::int64_t ps) { return static_cast<double>(ps) * kPicosecond; }
double percent(double share) { return 100 * share; }
std::string us(double seconds) { return number_text(seconds * 1e6); }

// A busy machine makes samples longer, never shorter.
double undisturbed(const Timing& timing) {
  return timing.disturbed() ? timing.least : timing.median;
}

const std::optional<Timing>& device_timing(const Evidence& e) {
  return e.device.is_cpu() ? e.in_kernels : e.queued;
}

// The device's time in an undisturbed step. On the CPU it is measured as a share, which noise makes
// larger or smaller.
double device_seconds(const Evidence& e) {
  const double step = undisturbed(e.step);
  return e.device.is_cpu() ? step * std::min(1.0, e.in_kernels->median / e.step.median)
                           : std::min(step, undisturbed(*e.queued));
}

// Why a timeline cannot attribute idle time; empty: it can.
std::string why_unattributed(const Evidence& e) {
  if (!e.occupancy) return e.without_timeline;
  if (!e.missing.empty()) return "the timeline is incomplete";
  if (e.perturbation > kMostPerturbation)
    return fmt::format("recording made the step {:.0f} % slower", percent(e.perturbation));
  return {};
}

// Recording delays each call of the host by about the same time, so the proportions hold roughly;
// how long the device waits is taken from the timings.
std::vector<IdleShare> idle_estimate_of(const Evidence& e) {
  std::vector<IdleShare> parts;
  if (!e.occupancy || !e.missing.empty() || e.perturbation <= kMostPerturbation || !e.queued)
    return parts;
  const double idle = 1 - std::min(e.queued->median, e.step.median) / e.step.median;
  const auto all = static_cast<double>(e.occupancy->idle(IdleCause::host));
  for (const IdleSource& source : e.occupancy->sources) {
    if (source.cause == IdleCause::host && all > 0)
      parts.push_back({source, idle * static_cast<double>(source.ns) / all});
  }
  return parts;
}

// The share of copies and fills in the time in which the device does not wait for the host.
double transfer_part(const Evidence& e) {
  if (!why_unattributed(e).empty()) return 0;
  const std::int64_t active = e.occupancy->wall_ns - e.occupancy->idle(IdleCause::host);
  if (active <= 0) return 0;
  return static_cast<double>(e.occupancy->transfer_ns) / static_cast<double>(active);
}

// The part of the device's time beyond what its kernels need, in seconds, if they were measured one
// by one. Default ceilings may need less than this machine.
double excess_of(const Evidence& e, double device) {
  if (!e.cost.calibrated) return 0;
  double excess = 0, all = 0;
  for (const MeasuredKernel& each : e.kernels) {
    excess += each.excess();
    all += each.seconds;
  }
  return all > 0 ? device * excess / all : 0;  // kernels of several lanes overlap
}

// Divides `time` (a share of the step) among the ceilings and the latency of kernels. `predicted`:
// the time of the kernels without launches, in seconds.
void divide(double time, double predicted, const StepTime& growing, Shares& shares) {
  const double bandwidth = seconds_of(growing.bandwidth_ps),
               compute = seconds_of(growing.compute_ps);
  // `growing` is a part of `predicted`, but for rounding.
  const double whole = std::max(predicted, bandwidth + compute);
  if (whole > 0) {
    shares.bandwidth = time * bandwidth / whole;
    shares.compute = time * compute / whole;
  }
  shares.small = std::max(0.0, time - shares.bandwidth - shares.compute);
}

Shares shares_on_cpu(const Evidence& e, double step, double in_kernels) {
  const double excess = excess_of(e, in_kernels), working = in_kernels - excess;
  const double calls = seconds_of(e.cost.on_device.overhead_ps);
  const double at_ceilings = seconds_of(e.cost.roofline.bound.ps());
  const double outside = step - in_kernels;
  // The clock around kernels includes part of the calls' overhead.
  const double overhead =
      std::max(outside, std::min(calls, outside + working - std::min(at_ceilings, working)));
  const double user = std::min(e.user.share, outside / step);
  Shares shares{.idle = outside / step - user, .launches = (overhead - outside) / step};
  shares.user = user;
  shares.inefficient = excess / step;
  divide(1 - overhead / step - shares.inefficient, seconds_of(e.cost.on_device.ps()) - calls,
         e.cost.roofline.growing, shares);
  return shares;
}

Shares shares_on_cuda(const Evidence& e, double step, double device) {
  const double busy = device / step;
  const double user = std::min(e.user.share, 1 - busy);
  Shares shares{.idle = 1 - busy - user, .transfers = busy * transfer_part(e)};
  shares.user = user;
  shares.inefficient = excess_of(e, device - shares.transfers * step) / step;
  const double on_device = busy - shares.transfers - shares.inefficient;
  const double predicted = seconds_of(e.cost.on_device.ps()),
               launches = seconds_of(e.cost.on_device.overhead_ps);
  shares.launches = on_device * launches / predicted;
  divide(on_device - shares.launches, predicted - launches, e.cost.roofline.growing, shares);
  return shares;
}

Shares shares_at(const Evidence& e, double step, double device) {
  device = std::min(device, step);
  return e.device.is_cpu() ? shares_on_cpu(e, step, device) : shares_on_cuda(e, step, device);
}

// The regime where the timings are as much longer or shorter as they spread, and where default
// ceilings are off by a factor of two. Of a mixture either regime may be the largest.
Confidence confidence_in(const Evidence& e, const Shares& found) {
  const Timing& device = *device_timing(e);
  const double step = undisturbed(e.step), busy = device_seconds(e);
  int same = 0, all = 0;
  for (const double a : {1 - e.step.spread / 2, 1.0, 1 + e.step.spread / 2}) {
    for (const double b : {1 - device.spread / 2, 1.0, 1 + device.spread / 2}) {
      for (const double ratio : {0.5, 1.0, 2.0}) {
        if (e.cost.calibrated && ratio != 1) continue;
        Shares shares = shares_at(e, a * step, b * busy);
        const double both = shares.bandwidth + shares.compute;
        const double moving = shares.bandwidth * ratio, weight = moving + shares.compute;
        if (weight > 0) {
          shares.bandwidth = both * moving / weight;
          shares.compute = both - shares.bandwidth;
        }
        same += shares.largest() == found.largest() || shares.largest() == found.mixed_with();
        ++all;
      }
    }
  }
  return same == all           ? Confidence::sure
         : 3 * same >= 2 * all ? Confidence::likely
                               : Confidence::unsure;
}

Achieved achieved(double work, std::int64_t at_ceilings_ps, double step) {
  return {work / step, seconds_of(at_ceilings_ps) / step};
}

// The largest share of the regime as a clause: "the device waits for the host 71 % of the step".
std::string largest_part(const Evidence& e, const Shares& s) {
  const bool on_cpu = e.device.is_cpu(), overhead = s.largest() == Regime::overhead;
  const std::pair<double, const char*> parts[] = {
      {s.idle, on_cpu ? "time outside of kernels is {:.0f} % of the step"
                      : "the device waits for the host {:.0f} % of the step"},
      {s.launches, on_cpu ? "calls of kernels take {:.0f} % of the step"
                          : "launches take {:.0f} % of the step"},
      {s.transfers, "copies and fills take {:.0f} % of the step"},
      {s.small, "kernels too small to reach the ceilings take {:.0f} % of the step"},
      {overhead ? 0 : s.inefficient, "inefficient kernels take {:.0f} % of the step"},
      {overhead ? 0 : s.bandwidth, "moving bytes takes {:.0f} % of the step"},
      {overhead ? 0 : s.compute, "arithmetic takes {:.0f} % of the step"}};
  const auto& [share, text] = *std::ranges::max_element(parts);
  return fmt::format(fmt::runtime(text), percent(share));
}

// Whether a mode may be faster: modes are ordered by the overhead that they remove.
bool may_help(const Evidence& e, Mode mode) {
  return e.mode < mode && std::ranges::find(e.ruled_out, mode) == e.ruled_out.end();
}

std::string advice_on_overhead(const Evidence& e, const Shares& s) {
  const std::string why = largest_part(e, s);
  if (s.transfers > std::max({s.idle, s.launches, s.small})) {
    return fmt::format("keep data on the device: {}, so at most {:.1f} times as fast without them",
                       why, 1 / (1 - s.transfers));
  }
  // A replay removes waiting for the host, but not launch latency; on the CPU it removes both.
  const double calls = s.idle + s.launches, host = e.device.is_cpu() ? calls : s.idle;
  const auto text = [&](const char* what, double saved) {
    return fmt::format("{}: {}, so at most {:.1f} times as fast", what, why,
                       1 / std::max(1 - saved, 0.01));
  };
  if (may_help(e, Mode::graph) && host > std::max(s.small, calls - host))
    return text("replay the step (Mode::graph)", host);
  if (may_help(e, Mode::fused) && calls > s.small)
    return text("fuse the step (Mode::fused)", calls);
  return fmt::format(
      "raise the batch: {}, and overhead of {:.0f} % hardly grows with it, so twice the work is "
      "expected to take {:.2f} times as long",
      why, percent(s.overhead()), 1 + s.bandwidth + s.compute);
}

// The type of most of the step's products; none: it has no products, or does not state their type.
std::optional<graph::ProductType> main_product(const Evidence& e) {
  const auto most = std::ranges::max_element(e.cost.product_flops);
  if (*most <= 0) return std::nullopt;
  return static_cast<graph::ProductType>(most - e.cost.product_flops.begin());
}
bool has_16_bits(const Evidence& e) {
  const auto type = main_product(e);
  return type == graph::ProductType::bf16 || type == graph::ProductType::f16;
}

const char* remedy_on_cuda(const Evidence& e) {
  const std::optional<graph::ProductType> type = main_product(e);
  if (!type) return "use tensor cores (TF32, bf16) if it does not yet, or do fewer FLOPs";
  if (has_16_bits(e)) return "do fewer FLOPs";
  return *type == graph::ProductType::tf32 ? "compute products in bf16, or do fewer FLOPs"
                                           : "use tensor cores (TF32, bf16), or do fewer FLOPs";
}

std::string advice_on_bandwidth(const Evidence& e, const Shares& s) {
  const double moved = seconds_of(e.cost.roofline.moving_ps) / e.step.median;
  if (may_help(e, Mode::fused)) {
    return fmt::format(
        "fuse the step (Mode::fused): {}, at {:.0f} % of the bandwidth's ceiling; half the bytes "
        "would save up to {:.0f} %",
        largest_part(e, s), percent(moved), percent(s.bandwidth / 2));
  }
  return fmt::format(
      "move fewer bytes ({}rematerialization): {}, at {:.0f} % of the bandwidth's ceiling; half "
      "of them would save up to {:.0f} %",
      has_16_bits(e) ? "" : "bf16, ", largest_part(e, s), percent(moved), percent(s.bandwidth / 2));
}

std::string advice_on_compute(const Evidence& e, const Shares& s) {
  const double reached = seconds_of(e.cost.roofline.computing_ps) / e.step.median;
  return fmt::format(
      "{}: {}, and the step reaches {:.0f} % of the ceiling for its types; all else "
      "could save at most {:.0f} %",
      e.device.is_cpu() ? "do fewer FLOPs, or use more cores or a GPU" : remedy_on_cuda(e),
      largest_part(e, s), percent(reached), percent(1 - s.compute));
}

std::string advice_on_inefficiency(const Evidence& e) {
  const MeasuredKernel& worst = *std::ranges::max_element(e.kernels, {}, &MeasuredKernel::excess);
  return fmt::format(
      "look at the kernel {}: it takes {:.1f} times what its bytes, FLOPs and launches need, and "
      "without that the step would be at most {:.2f} times as fast",
      to_string(worst), worst.seconds / worst.needed,
      1 / std::max(0.01, 1 - worst.excess() / e.step.median));
}

std::string advice_on_user_code(const Evidence& e, const Shares& s) {
  return fmt::format(
      "look at {}: the step's own code takes {:.0f} % of it, so at most {:.1f} times as fast "
      "without",
      e.user.lines.empty() ? "the code outside of brrr" : to_string(e.user.lines.front()),
      percent(s.user), 1 / std::max(1 - s.user, 0.01));
}

constexpr Regime kAllRegimes[] = {Regime::overhead, Regime::bandwidth, Regime::compute,
                                  Regime::inefficient, Regime::user};

}  // namespace

std::string to_string(const MeasuredKernel& kernel) {
  const std::string count = kernel.launches == 1 ? "" : fmt::format("{} x ", kernel.launches);
  return fmt::format("{}{} of {}{}{}{}", count, kernel.name, kernel.result,
                     kernel.module.empty() ? "" : " in " + kernel.module,
                     kernel.phase.empty() ? "" : ", " + kernel.phase,
                     kernel.line.empty() ? "" : ", at " + kernel.line);
}

double Shares::of(Regime regime) const {
  switch (regime) {
    case Regime::overhead: return overhead();
    case Regime::bandwidth: return bandwidth;
    case Regime::compute: return compute;
    case Regime::inefficient: return inefficient;
    case Regime::user: break;
  }
  return user;
}

Regime Shares::largest() const {
  return *std::ranges::max_element(kAllRegimes, {}, [this](Regime each) { return of(each); });
}

std::optional<Regime> Shares::mixed_with() const {
  const Regime first = largest();
  std::optional<Regime> second;
  for (const Regime regime : kAllRegimes) {
    if (regime != first && of(first) - of(regime) < kMixed && (!second || of(regime) > of(*second)))
      second = regime;
  }
  return second;
}

Percentages percentages_of(const Shares& shares) {
  Percentages percentages{};
  std::array<std::pair<double, std::size_t>, kRegimes.size()> fractions;
  auto missing = static_cast<int>(std::lround(percent(shares.sum())));
  for (std::size_t i = 0; i < percentages.size(); ++i) {
    const double exact = percent(shares.of(kAllRegimes[i])), whole = std::floor(exact);
    percentages[i] = static_cast<int>(whole);
    fractions[i] = {exact - whole, i};
    missing -= percentages[i];
  }
  std::ranges::stable_sort(fractions, std::ranges::greater(),
                           &std::pair<double, std::size_t>::first);
  for (const auto& [fraction, i] : fractions) {
    if (missing-- > 0) ++percentages[i];
  }
  return percentages;
}

std::vector<std::string> problems_of(const Evidence& e) {
  std::vector<std::string> problems = e.further_problems;
  if (!device_timing(e)) {
    problems.emplace_back(e.device.is_cpu()
                              ? "incomplete: the kernels were not timed"
                              : "incomplete: the device was not timed, since its stream cannot "
                                "queue a whole step");
  }
  if (e.cost.on_device.ps() == 0) problems.emplace_back("incomplete: the step runs no kernel");
  return problems;
}

std::vector<std::string> doubts_of(const Evidence& e) {
  std::vector<std::string> doubts;
  const auto check = [&](const Timing& timing, const char* what, const char* then) {
    if (timing.disturbed()) {
      doubts.push_back(fmt::format("disturbed: samples of {} spread by {:.0f} %{}", what,
                                   percent(timing.spread), then));
    }
  };
  constexpr const char* kLeast = ", the least counts";
  check(e.step, "the step", kLeast);
  if (const std::optional<Timing>& device = device_timing(e)) {
    const bool on_cpu = e.device.is_cpu();
    const char* const name = on_cpu ? "time in kernels" : "queued steps";
    check(*device, name, on_cpu ? "" : kLeast);
    const double busy = on_cpu ? device->median : undisturbed(*device),
                 step = on_cpu ? e.step.median : undisturbed(e.step);
    if (busy > kMethods * step) {
      doubts.push_back(
          fmt::format("disturbed: {} took {} us, the whole step {}", name, us(busy), us(step)));
    }
  }
  if (!e.cost.calibrated) {
    const std::string& why = e.cost.why_defaults;
    doubts.push_back(fmt::format("default ceilings{}: brrr calibrate measures this machine's",
                                 why.empty() ? "" : " (" + why + ")"));
  }
  doubts.insert(doubts.end(), e.drift.begin(), e.drift.end());
  for (const std::string& what : e.missing)
    doubts.push_back(fmt::format("the timeline is incomplete: {}", what));
  if (e.gpu) {
    for (const std::string& line : disturbances(*e.gpu)) doubts.push_back("disturbed: " + line);
  }
  return doubts;
}

Shares shares_of(const Evidence& e) {
  if (!device_timing(e) || e.cost.on_device.ps() == 0)
    fail("[shares_of] expected kernels and their measured time, got none");
  return shares_at(e, undisturbed(e.step), device_seconds(e));
}

std::string advice_on(const Evidence& e, const Shares& shares) {
  const auto time = [](const Alternative& a) { return a.predicted.ps(); };
  const auto best = std::ranges::min_element(e.alternatives, {}, time);
  // Errors that predictions have in common cancel in their ratio.
  if (best != e.alternatives.end()) {
    const double ratio =
        static_cast<double>(time(*best)) /
        static_cast<double>(std::max<std::int64_t>(e.cost.predicted_at_timed_speed.ps(), 1));
    const double predicted = seconds_of(time(*best));
    if (ratio < kWorthwhile && predicted < kWorthwhile * e.step.median) {
      return fmt::format("{} is predicted to take {} us in place of {}: {}", best->name,
                         us(predicted), us(e.step.median), largest_part(e, shares));
    }
  }
  switch (shares.largest()) {
    case Regime::overhead: return advice_on_overhead(e, shares);
    case Regime::bandwidth: return advice_on_bandwidth(e, shares);
    case Regime::compute: return advice_on_compute(e, shares);
    case Regime::inefficient: return advice_on_inefficiency(e);
    case Regime::user: return advice_on_user_code(e, shares);
  }
  return "";
}

Diagnosis judge(const Evidence& e) {
  if (!(e.step.median > 0)) fail("[judge] expected a step's time, got {} s", e.step.median);
  Diagnosis result;
  result.step = e.step.median;
  if (const std::optional<Timing>& device = device_timing(e))
    result.device_time = std::min(device->median, e.step.median);
  result.flops =
      achieved(static_cast<double>(e.cost.flops), e.cost.roofline.computing_ps, result.step);
  result.bytes =
      achieved(static_cast<double>(e.cost.bytes), e.cost.roofline.moving_ps, result.step);
  if (result.device_time && *result.device_time > 0)
    result.efficiency = seconds_of(e.cost.roofline.bound.ps()) / *result.device_time;
  result.unattributed = why_unattributed(e);
  if (result.unattributed.empty()) result.occupancy = e.occupancy;
  result.idle_estimate = idle_estimate_of(e);
  if (e.gpu) result.not_checked = not_checked(*e.gpu);
  if (!e.user.problem.empty())
    result.not_checked.push_back("the step's own code: " + e.user.problem);
  result.code = e.user.lines;
  result.problems = problems_of(e);
  result.doubts = doubts_of(e);
  if (!result.problems.empty()) return result;
  result.shares = shares_of(e);
  result.regime = result.shares->largest();
  result.confidence = confidence_in(e, *result.shares);
  const auto slowest = std::ranges::max_element(e.kernels, {}, &MeasuredKernel::excess);
  if (result.shares->inefficient > 0) result.slowest = *slowest;
  if (e.device.is_cuda() && !result.by_timeline() && (e.occupancy || e.without_kernels))
    result.caveats.emplace_back("basis: timings only");
  result.advice = advice_on(e, *result.shares);
  return result;
}

std::string bound_text(Regime regime) {
  if (regime == Regime::inefficient) return "bound by inefficient kernels";
  if (regime == Regime::user) return "bound by your own code";
  return fmt::format("{}-bound", name_of(regime));
}

std::string regime_text(const Diagnosis& d) {
  if (!d.regime) return "without a verdict";
  const Shares& s = *d.shares;
  const Percentages percentages = percentages_of(s);
  const auto percent_of = [&](Regime regime) {
    return percentages[static_cast<std::size_t>(regime)];
  };
  const auto part = [&](Regime regime) {
    return fmt::format("{}{} {} %", name_of(regime),
                       regime == Regime::inefficient ? " kernels"
                       : regime == Regime::user      ? " code"
                                                     : "",
                       percent_of(regime));
  };
  const std::optional<Regime> second = s.mixed_with();
  std::vector<std::string> parts = {second ? fmt::format("{}, {}", part(*d.regime), part(*second))
                                           : fmt::format("{} %", percent_of(*d.regime))};
  if (d.confidence != Confidence::sure)
    parts.emplace_back(kConfidences[static_cast<std::size_t>(d.confidence)]);
  parts.insert(parts.end(), d.caveats.begin(), d.caveats.end());
  return fmt::format("{} ({})", second ? "mixed" : bound_text(*d.regime), fmt::join(parts, "; "));
}

std::string to_string(const Diagnosis& diagnosis) {
  std::string unknown;
  for (const std::string& what : diagnosis.not_checked) unknown += "; not checked: " + what;
  if (!diagnosis.regime)
    return fmt::format("no verdict: {}{}", fmt::join(diagnosis.problems, "; "), unknown);
  const Shares& s = *diagnosis.shares;
  const auto [overhead, bandwidth, compute, inefficient, user] = percentages_of(s);
  std::string text = fmt::format("{}: {} % overhead, {} % bandwidth, {} % compute",
                                 s.mixed_with() ? "mixed" : bound_text(*diagnosis.regime), overhead,
                                 bandwidth, compute);
  if (s.inefficient > 0) text += fmt::format(", {} % inefficient kernels", inefficient);
  if (s.user > 0) text += fmt::format(", {} % your own code", user);
  for (const std::string& caveat : diagnosis.caveats) text += "; " + caveat;
  if (diagnosis.confidence != Confidence::sure)
    text += fmt::format("; {}", kConfidences[static_cast<std::size_t>(diagnosis.confidence)]);
  for (const std::string& doubt : diagnosis.doubts) text += "; " + doubt;
  return text + unknown;
}

}  // namespace brrr::measure
