// Experiments on timelines: idle gaps if the host falls behind, and what a GPU's utilization figure
// means.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "brrr/measure/lab_experiments.h"
#include "brrr/measure/timeline.h"
#include "brrr/measure/timeline_plot.h"
#include "brrr/nn/mlp.h"
#include "brrr/ops/functions.h"

namespace brrr::measure::lab {
namespace {

Step mlp_step(const LabOptions& options, std::int64_t batch, std::int64_t width, int layers) {
  const auto model = std::make_shared<nn::MLP>(
      std::vector<std::int64_t>(static_cast<std::size_t>(layers) + 1, width),
      Options{.dtype = f32, .device = options.device});
  return training_step(options.device, model, {batch, width});
}

Timeline record(const LabOptions& options, const Step& step) {
  const TimelineOptions quick{.steps = 3, .untraced_steps = 6, .budget_seconds = 0.01},
      full{.steps = 9};
  return record_timeline(options.device, step, options.quick ? quick : full);
}

// In percent of a recorded step: the median over these.
double host_share(const Timeline& timeline, HostWork work) {
  std::vector<double> shares;
  Timeline one = timeline;
  for (const HostSpan& step : timeline.steps) {
    one.steps = {step};
    shares.push_back(100 * static_cast<double>(one.host_ns(work)) /
                     static_cast<double>(one.step_ns()));
  }
  return summarize(std::move(shares)).median;
}

// The share of time in which a kernel runs. Without CUPTI: the device time of a step that was
// queued in advance, divided by the step's time. On the CPU: the share of time in ops, which run
// their kernels.
double busy_share(const Timeline& timeline, const Step& step) {
  if (timeline.device.is_cpu()) return host_share(timeline, HostWork::op);
  if (timeline.is_complete()) return 100 * timeline.busy_share();
  const std::optional<Timing> queued = time_queued(timeline.device, step, 1, 5);
  return queued ? std::min(100.0, 100 * queued->median / timeline.untraced.median)
                : 100 * timeline.busy_share();
}

// How the timelines were recorded: "... CUPTI 13.0; tracing adds 2.1 %".
std::string how(const char* name, const Timeline& timeline) {
  return fmt::format("{}: {}, tracing adds {:.1f} %", name, timeline.source,
                     100 * timeline.perturbation());
}

// The lengths that shares of a step are made of.
std::string span_text(const char* name, const Timeline& timeline) {
  const auto us = [&](std::int64_t ns) {
    return number_text(static_cast<double>(ns) * 1e-3 / static_cast<double>(timeline.steps.size()));
  };
  return fmt::format(
      "{}: {} us, and {} where it is recorded, of which the host is in ops for {} and waits for {}",
      name, number_text(timeline.untraced.median * 1e6), us(timeline.step_ns()),
      us(timeline.host_ns(HostWork::op)), us(timeline.host_ns(HostWork::wait)));
}

void add_doubts(const char* name, const Timeline& timeline, Finding& finding) {
  for (const std::string& what : timeline.missing)
    finding.incomplete.push_back(
        fmt::format("the timeline of the {} lacks records: {}", name, what));
  if (const std::string doubt = recording_doubt(name, timeline.perturbation()); !doubt.empty())
    finding.incomplete.push_back(doubt);
}

// The longest time from the call that launches a kernel until the kernel starts.
double longest_lead_us(const Timeline& timeline) {
  std::int64_t most = 0;
  for (const DeviceSpan& span : timeline.spans) {
    if (span.cause && !span.replayed)
      most = std::max(most, span.start_ns - timeline.host[*span.cause].start_ns);
  }
  return static_cast<double>(most) * 1e-3;
}

}  // namespace

std::string recording_doubt(std::string_view name, double perturbation) {
  constexpr double kTwice = 1;
  if (perturbation <= kTwice) return "";
  return fmt::format("tracing makes the {} {:.2f} times as long", name, 1 + perturbation);
}

Finding timelines(const LabOptions& options) {
  const bool on_cpu = options.device.is_cpu();
  const MatmulPrecisionGuard precision(on_cpu ? Precision::full : Precision::tf32);
  const MatmulChoiceGuard choice(MatmulChoice::measured);
  const std::int64_t wide = on_cpu ? 512 : full_product(options);
  struct Case {
    const char* name;
    Step step;
    Interval idle, waits;  // as claimed, in percent
  };
  const Case cases[] = {{"small step", mlp_step(options, 8, 16, 8), {20, 100}, {0, 50}},
                        {"large step", mlp_step(options, wide, wide, 4), {0, 10}, {50, 100}}};
  Finding finding;
  std::vector<std::string> hows;
  for (const Case& one : cases) {
    options.progress(one.name);
    const Timeline timeline = record(options, one.step);
    const auto add = [&](const char* what, double value, const char* unit,
                         std::optional<Interval> claim) {
      finding.readings.push_back({.name = fmt::format("{}: {}", one.name, what),
                                  .value = value,
                                  .unit = unit,
                                  .claim = claim,
                                  .spread = timeline.untraced.spread,
                                  .miss = span_text(one.name, timeline)});
    };
    add("time", timeline.untraced.median * 1e6, "us", std::nullopt);
    const double idle = 100 - busy_share(timeline, one.step);
    hows.push_back(how(one.name, timeline));
    add_doubts(one.name, timeline, finding);
    finding.timelines.push_back(lane_plot(timeline, fmt::format("One step: {}", one.name)));
    if (on_cpu) {
      // An op returns when its kernel is done: what is outside of ops is overhead, tracing's too.
      add("outside of ops", idle, "%", one.idle);
      continue;
    }
    add("device idle", idle, "%", one.idle);
    add("host waits for the device", host_share(timeline, HostWork::wait), "%", one.waits);
    if (timeline.is_complete())
      add("longest lead of the host", longest_lead_us(timeline), "us", std::nullopt);
  }
  finding.why =
      fmt::format("{}{}",
                  on_cpu ? "on the CPU the host runs the kernels and cannot run ahead, so "
                           "the time outside of ops stands for the gaps; "
                         : "",
                  fmt::join(hows, "; "));
  return finding;
}

Finding gpu_util(const LabOptions& options) {
  const bool on_cpu = options.device.is_cpu();
  const MatmulPrecisionGuard precision(on_cpu ? Precision::full : Precision::tf32);
  const MatmulChoiceGuard choice(MatmulChoice::measured);
  const std::int64_t wide = full_product(options);
  const ProductRate peak = product_rate(options, wide, f32);
  const Step pointwise =
      [x = rand({large(options)}, {.dtype = f32, .device = options.device})]() mutable {
        add_(mul_(relu_(sub_(x, 0.25)), 0.5), 0.5);
      };
  struct Case {
    const char* name;
    Step step;
    std::optional<Interval> busy;
    Interval achieved;
  };
  const Case cases[] = {
      {"overhead-bound",
       mlp_step(options, 8, 16, 8),
       on_cpu ? std::nullopt : std::optional(Interval{0, 80}),
       {0, 10}},
      {"bandwidth-bound", pointwise, Interval{90, 100}, {0, 20}},
      {"compute-bound", mlp_step(options, wide, wide, 2), Interval{90, 100}, {50, 110}}};
  Finding finding;
  std::vector<std::string> hows;
  for (const Case& one : cases) {
    options.progress(one.name);
    const double flops = prepare(options.device, one.step, Mode::eager).flops;
    const Timeline timeline = record(options, one.step);
    const auto add = [&](const char* what, double value, std::optional<Interval> claim) {
      finding.readings.push_back(
          {.name = fmt::format("{}: {}", one.name, what),
           .value = value,
           .unit = "%",
           .claim = claim,
           .spread = std::max(timeline.untraced.spread, peak.spread),
           .miss = fmt::format("{}, and has {} Mflop", span_text(one.name, timeline),
                               number_text(flops * 1e-6))});
    };
    add(on_cpu ? "time in ops" : "time in which a kernel runs", busy_share(timeline, one.step),
        one.busy);
    add("achieved share of peak", 100 * flops / timeline.untraced.median / peak.rate, one.achieved);
    hows.push_back(how(one.name, timeline));
    add_doubts(one.name, timeline, finding);
  }
  finding.why = fmt::format(
      "peak is a square product of {} at {} GFLOP/s; a utilization near 100 % says only that there "
      "are no gaps{}; {}",
      wide, number_text(peak.rate * 1e-9),
      on_cpu ? " (on the CPU, which has no such counter, the share of time in ops)" : "",
      fmt::join(hows, "; "));
  return finding;
}

}  // namespace brrr::measure::lab
