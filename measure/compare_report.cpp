#include "brrr/measure/compare_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "brrr/graph/ceilings.h"
#include "brrr/measure/bench.h"
#include "brrr/measure/compare_text.h"
#include "brrr/measure/kernel_groups.h"
#include "brrr/measure/report_file.h"
#include "brrr/measure/text.h"
#include "brrr/measure/timeline_plot.h"
#include "brrr/measure/verdict_text.h"

namespace brrr::measure {
namespace {

double microseconds(std::int64_t picoseconds) { return static_cast<double>(picoseconds) * 1e-6; }
double measured_us(const Side& side) { return side.step->median * 1e6; }
double predicted_us(const Side& side) { return microseconds(side.cost->predicted.ps()); }

std::string origin_text(const Side& side) {
  return side.cost->calibrated
             ? "by the times of kernels and this machine's ceilings"
             : "by the times of kernels and default ceilings (brrr calibrate measures them)";
}

double total_seconds(const std::vector<KernelGroup>& kernels) {
  double seconds = 0;
  for (const KernelGroup& each : kernels) seconds += each.seconds;
  return std::max(seconds, 1e-12);
}

// The source of kernel times: "measured", "predicted", or how many are measured.
std::string source_of_times(const Side& side) {
  const auto measured =
      std::ranges::count_if(side.launch_seconds, [](const auto& time) { return time.has_value(); });
  if (measured == 0) return "predicted";
  const std::string by =
      fmt::format("measured ({}, {} steps)", side.timeline->source, side.timeline->steps.size());
  if (measured == std::ssize(side.launches)) return by;
  return fmt::format("{} for {} of {} launches, predicted for others", by, measured,
                     side.launches.size());
}

const char* bound_of(const KernelTime& time) {
  const std::int64_t work = std::max(time.moving_ps, time.computing_ps);
  if (time.overhead_ps > work) return "overhead";
  return time.computing_ps > time.moving_ps ? "compute" : "bandwidth";
}

// How near a kernel is to its ceiling: the time of its work at the ceiling that binds it, as a
// share of its measured time.
std::optional<double> share_of_ceiling(const Side& side, const KernelGroup& kernels) {
  if (!side.cost->calibrated || !kernels.is_measured() || kernels.seconds <= 0) return {};
  const KernelTime& time = kernels.cost->by_ceilings;
  return microseconds(std::max(time.moving_ps, time.computing_ps)) * 1e-6 / kernels.each();
}

// Why kernels of a step are above a ceiling; empty: none is.
std::string above_ceilings_text(const Side& side) {
  constexpr double kAbove = 1.005;  // as it is printed
  const bool above = std::ranges::any_of(grouped(side), [&](const KernelGroup& each) {
    return share_of_ceiling(side, each).value_or(0) >= kAbove;
  });
  return above ? "; above 100 % a kernel is faster than when the ceilings were measured, or finds "
                 "its operands in a cache"
               : "";
}

Table kernels_table(const Side& side) {
  constexpr std::size_t kRows = 24;
  const std::vector<KernelGroup> kernels = grouped(side);
  const double all = total_seconds(kernels);
  Table table{fmt::format("Kernels of a {} step{}", side.name, above_ceilings_text(side)),
              {"kernel", "result", "in", "launches", "Mflop each", "moved each", "µs in all",
               "µs predicted", "share", "of ceiling", "bound by"},
              {}};
  const auto row = [&](std::vector<std::string> cells, double seconds, std::int64_t predicted_ps,
                       const std::string& of_ceiling, const char* bound) {
    cells.insert(cells.end(), {number_text(seconds * 1e6), number_text(microseconds(predicted_ps)),
                               fmt::format("{:.1f} %", 100 * seconds / all), of_ceiling, bound});
    table.rows.push_back(std::move(cells));
  };
  for (std::size_t i = 0; i < std::min(kernels.size(), kRows); ++i) {
    const LaunchCost& cost = *kernels[i].cost;
    const std::optional<double> of_ceiling = share_of_ceiling(side, kernels[i]);
    row({cost.name, cost.result, kernels[i].where(), std::to_string(kernels[i].count),
         number_text(static_cast<double>(cost.flops) * 1e-6),
         bytes_text(static_cast<double>(cost.bytes))},
        kernels[i].seconds, kernels[i].predicted_ps,
        of_ceiling ? fmt::format("{:.0f} %", 100 * *of_ceiling) : "-", bound_of(cost.by_ceilings));
  }
  KernelGroup others;
  for (std::size_t i = kRows; i < kernels.size(); ++i) {
    others.count += kernels[i].count;
    others.seconds += kernels[i].seconds;
    others.predicted_ps += kernels[i].predicted_ps;
  }
  if (others.count > 0) {
    row({"all others", "-", "", std::to_string(others.count), "-", "-"}, others.seconds,
        others.predicted_ps, "-", "-");
  }
  return table;
}

// The bandwidth that the prediction used for the step: that of its working set.
double bandwidth_of(const std::vector<LaunchCost>& launches) {
  double bandwidth = 0;
  for (const LaunchCost& each : launches) {
    if (each.by_ceilings.moving_ps <= 0) continue;
    bandwidth = std::max(bandwidth, static_cast<double>(each.bytes) /
                                        (static_cast<double>(each.by_ceilings.moving_ps) * 1e-12));
  }
  return bandwidth;
}

RooflinePlot roofline_of(const Side& side, Device device) {
  const auto ceilings = graph::ceilings_of(device);
  RooflinePlot plot{.title = fmt::format("Roofline of a {} step", side.name),
                    .description = "The area of a point is its share of the time of all kernels."};
  const double bandwidth = bandwidth_of(side.launches),
               cold = static_cast<double>(ceilings->moved.rate());
  plot.bandwidths.push_back({"bandwidth, memory of this step", bandwidth});
  if (std::abs(bandwidth / cold - 1) > 0.05)
    plot.bandwidths.push_back({"bandwidth, cold caches", cold});
  for (std::size_t type = 0; type < graph::kProductTypes.size(); ++type) {
    const std::string name = graph::kProductTypes[type];
    if (std::ranges::find(side.launches, name, &LaunchCost::product) == side.launches.end())
      continue;
    const auto rate = ceilings->product(static_cast<graph::ProductType>(type)).rate();
    plot.computes.push_back({"products in " + name, static_cast<double>(rate)});
  }
  plot.computes.push_back({"other FLOPs, f32", static_cast<double>(ceilings->f32_flops)});
  const std::vector<KernelGroup> kernels = grouped(side);
  const double all = total_seconds(kernels);
  for (const KernelGroup& each : kernels) {
    const LaunchCost& cost = *each.cost;
    const std::string count = each.count == 1 ? "" : fmt::format("{} \u00d7 ", each.count);
    plot.kernels.push_back({.name = fmt::format("{}{}: {}", count, cost.result, cost.name),
                            .flops = static_cast<double>(cost.flops),
                            .bytes = static_cast<double>(cost.bytes),
                            .seconds = each.each(),
                            .share = each.seconds / all,
                            .measured = each.is_measured()});
  }
  return plot;
}

std::string roofline_caption(const Side& side) {
  const StepTime& step = side.cost->predicted;
  const double all = static_cast<double>(std::max<std::int64_t>(step.ps(), 1));
  const auto share = [&](std::int64_t ps) { return 100 * static_cast<double>(ps) / all; };
  return fmt::format(
      "Times of kernels are {}. Of the predicted step {:.0f} % is overhead, {:.0f} % kernels bound "
      "by bandwidth, {:.0f} % kernels bound by compute.",
      source_of_times(side), share(step.overhead_ps), share(step.bandwidth_ps),
      share(step.compute_ps));
}

// --- Sections ---

Section summary_section(const Comparison& comparison) {
  Section section{.title = "Comparison"};
  const bool right = !comparison.divergence && !comparison.disagreement();
  for (const std::string& line : agreement_lines(comparison))
    section.blocks.emplace_back(
        Text{"Losses: " + line + ".", right ? Text::Tone::plain : Text::Tone::warning});
  std::vector<std::vector<std::string>> rows = comparison_table(comparison);
  Table table{"A step in each mode; predictions were made before any step was timed",
              std::move(rows.front()),
              {}};
  table.columns.front() = "mode";
  table.rows.assign(std::make_move_iterator(rows.begin() + 1), std::make_move_iterator(rows.end()));
  section.blocks.emplace_back(std::move(table));
  if (comparison.sides.front().cost->calibrated)
    section.blocks.emplace_back(Text{"The host's speed: " + host_speed_text(comparison) + "."});
  if (std::ranges::any_of(comparison.sides, [](const Side& s) { return s.step->disturbed(); }))
    section.blocks.emplace_back(paragraph(kDisturbed, Text::Tone::warning));
  return section;
}

std::string times_caption(const Comparison& comparison) {
  const Side* worst = nullptr;
  const auto error = [](const Side& s) { return std::abs(predicted_us(s) / measured_us(s) - 1); };
  for (const Side& side : comparison.sides)
    if (!worst || error(side) > error(*worst)) worst = &side;
  return fmt::format("The predictions, {}, are off by at most {:.0f} % ({}).", origin_text(*worst),
                     100 * error(*worst), worst->name);
}

// The part of the predicted step, in picoseconds.
double predicted_part(const StepCost& cost, Regime regime) {
  const core::StepTime& step = cost.predicted;
  switch (regime) {
    case Regime::overhead: return static_cast<double>(step.overhead_ps - cost.user_ps);
    case Regime::bandwidth: return static_cast<double>(step.bandwidth_ps);
    case Regime::compute: return static_cast<double>(step.compute_ps);
    case Regime::inefficient: return 0;
    case Regime::user: break;
  }
  return static_cast<double>(cost.user_ps);
}

// The parts that a step has, measured or predicted.
std::vector<ShownShare> shares_in(const Comparison& comparison) {
  std::vector<ShownShare> shown;
  for (const ShownShare& each : kShownShares) {
    const auto has = [&](const Side& side) {
      const std::optional<Shares>& shares = side.diagnosis.shares;
      return (shares && shares->of(each.regime) > 0) || predicted_part(*side.cost, each.regime) > 0;
    };
    if (std::ranges::any_of(comparison.sides, has)) shown.push_back(each);
  }
  return shown;
}

// What one reads first: what a step's time goes to in each mode, and what helps.
Section head_section(const Comparison& comparison) {
  BarPlot plot{.title = "Time of a step by mode",
               .description = "Measured beside predicted, divided by what bounds it.",
               .unit = "us",
               .measures = {"measured, median", "predicted before"}};
  const std::vector<ShownShare> shown = shares_in(comparison);
  for (const ShownShare& each : shown) {
    plot.parts.emplace_back(each.name);
    plot.colors.push_back(each.plot_color);
  }
  for (const Side& side : comparison.sides) {
    BarGroup& group = plot.groups.emplace_back(
        BarGroup{.name = side.name, .values = {measured_us(side), predicted_us(side)}});
    group.shares.resize(2);
    for (const ShownShare& each : shown) {
      if (side.diagnosis.shares) group.shares[0].push_back(side.diagnosis.shares->of(each.regime));
      group.shares[1].push_back(predicted_part(*side.cost, each.regime));
    }
  }
  Section section{.title = "In short", .blocks = {Text{regime_text(comparison) + "."}}};
  section.blocks.emplace_back(Figure{std::move(plot), times_caption(comparison)});
  for (const auto& [title, text] : summary_of(comparison)) {
    const bool warns = title == "in doubt" || title == "stopped";
    section.blocks.emplace_back(
        paragraph(title + ": " + text, warns ? Text::Tone::warning : Text::Tone::plain));
  }
  return section;
}

Section costs_section(const Comparison& comparison) {
  BarPlot memory{.title = "Peak memory of a step by mode",
                 .description = "All live tensors, parameters among them.",
                 .unit = "MiB",
                 .measures = {"measured"}};
  for (const Side& side : comparison.sides)
    memory.groups.push_back({side.name, {static_cast<double>(side.cost->peak_bytes) / (1 << 20)}});
  return {.title = "Memory of a step",
          .blocks = {Figure{std::move(memory),
                            "All live tensors of the training: parameters, gradients, the "
                            "optimizer's state and what a step computes."}}};
}

Section kernels_section(const Comparison& comparison) {
  Section section{.title = "Kernels"};
  std::vector<Table> tables;
  for (const Side& side : comparison.sides) {
    if (side.launches.empty()) continue;
    if (section.blocks.empty()) {
      section.blocks.emplace_back(
          Text{"A point below its ceiling pays for its launch, or for functions such as exp."});
    }
    section.blocks.emplace_back(
        Figure{roofline_of(side, comparison.device), roofline_caption(side)});
    tables.push_back(kernels_table(side));
  }
  for (Table& table : tables) section.blocks.emplace_back(std::move(table));
  return section;
}

// One recorded step of each mode.
Section timelines_section(const Comparison& comparison) {
  Section section{.title = "Recorded steps"};
  double longest = 0;
  for (const Side& side : comparison.sides)
    if (side.timeline) longest = std::max(longest, step_us(*side.timeline));
  for (const Side& side : comparison.sides) {
    if (!side.timeline) continue;
    const Timeline& timeline = *side.timeline;
    const double longer = timeline.perturbation();
    std::string caption =
        longer > 0 ? fmt::format("By {}; recording makes a step {:.1f} % longer.", timeline.source,
                                 100 * longer)
                   : fmt::format("By {}; recording makes a step no longer.", timeline.source);
    for (const std::string& each : timeline.missing) caption += " Missing: " + each + ".";
    section.blocks.emplace_back(
        Figure{lane_plot(timeline, fmt::format("One step, {}", side.name), longest), caption});
    if (side.mode != Mode::eager) continue;  // a replay has no ops to sample after
    if (auto memory = memory_plot(timeline, "Memory during an eager step, measured", longest)) {
      section.blocks.emplace_back(
          Figure{*std::move(memory), "All live tensors of the training, after each op."});
    }
  }
  return section;
}

// A plot for each mode with policies of rematerialization; empty: there are none.
Section memory_section(const Comparison& comparison) {
  Section section{.title = "Planned memory over a step"};
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    std::vector<std::pair<std::string, LiveBytes>> policies;
    std::string caption;
    for (const Side& side : comparison.sides) {
      if (side.mode != mode || !side.live || !side.compiled) continue;
      policies.emplace_back(side.remat, *side.live);
      caption += fmt::format(
          "{}{}: {} planned in place of {}, {} calls recomputed", caption.empty() ? "" : "; ",
          side.remat, bytes_text(static_cast<double>(side.compiled->arena_bytes)),
          bytes_text(static_cast<double>(side.compiled->arena_bytes_without_remat)),
          side.compiled->recomputed_calls);
    }
    if (policies.empty()) continue;
    LinePlot plot = memory_plot(policies);
    plot.title = fmt::format("Planned memory over a {} step", name_of(mode));
    section.blocks.emplace_back(Figure{std::move(plot), caption + "."});
  }
  return section;
}

// Downsamples a curve: the maximum of each of at most `kStretches` intervals, by share of the
// calls.
std::vector<std::pair<double, double>> curve_of(const std::vector<std::size_t>& live, double unit) {
  constexpr std::size_t kStretches = 240;
  const std::size_t count = std::min(live.size(), kStretches);
  std::vector<std::pair<double, double>> points;
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = live.begin() + static_cast<std::ptrdiff_t>(i * live.size() / count),
               to = live.begin() + static_cast<std::ptrdiff_t>((i + 1) * live.size() / count);
    points.emplace_back(100.0 * static_cast<double>(i) / static_cast<double>(count),
                        static_cast<double>(*std::max_element(from, to)) / unit);
  }
  if (!points.empty()) points.emplace_back(100, points.back().second);
  return points;
}

}  // namespace

LinePlot memory_plot(const std::vector<std::pair<std::string, LiveBytes>>& policies) {
  std::size_t most = 0;
  for (const auto& [name, live] : policies)
    for (const std::size_t bytes : live.every_value_kept) most = std::max(most, bytes);
  constexpr double kKiB = 1024, kMiB = 1024 * kKiB;
  const bool large = static_cast<double>(most) >= kMiB;
  LinePlot plot{.title = "Planned memory over a step",
                .description =
                    "Memory in use at each call of the step, with every value kept and with values "
                    "computed again.",
                .x = {"calls of the step, %"},
                .y = {large ? "MiB in use" : "KiB in use"},
                .series = {},
                .steps = true};
  const auto add = [&](const std::string& name, const std::vector<std::size_t>& live) {
    const std::size_t peak = live.empty() ? 0 : std::ranges::max(live);
    plot.series.push_back(
        {fmt::format("{}: at most {}", name, bytes_text(static_cast<double>(peak))),
         curve_of(live, large ? kMiB : kKiB)});
  };
  const auto add_both = [&](const std::string& name, const std::vector<std::size_t>& live,
                            const std::vector<std::size_t>& in_gradients) {
    add(name, live);
    if (std::ranges::any_of(in_gradients, [](std::size_t bytes) { return bytes > 0; }))
      add(name + ", in the memory of gradients", in_gradients);
  };
  for (const auto& [name, live] : policies) {
    if (plot.series.empty())
      add_both("every value kept", live.every_value_kept, live.every_value_kept_in_gradients);
    add_both(name, live.planned, live.planned_in_gradients);
  }
  return plot;
}

Report compare_report(const Comparison& comparison, const Machine& machine,
                      const std::string& command) {
  Report report{.title = comparison.describes.empty()
                             ? comparison.name
                             : comparison.name + ": " + comparison.describes,
                .facts = report_facts(machine, comparison.device, command)};
  for (Section (*const section)(const Comparison&) :
       {head_section, summary_section, verdict_section, costs_section, timelines_section,
        kernels_section, memory_section}) {
    Section each = section(comparison);
    if (!each.blocks.empty()) report.sections.push_back(std::move(each));
  }
  return report;
}

}  // namespace brrr::measure
