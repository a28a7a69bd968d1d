// Tables and lines below those of text_output.cpp.
#include "cli/verdict_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/text_output.h"
#include <brrr/measure/bench.h>

namespace brrr::cli {

using measure::number_text;

namespace {

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::vector<std::string> row_of(const measure::ComparedMode& mode) {
  const measure::Diagnosis& d = mode.diagnosis;
  std::vector<std::string> row = {mode.name, d.regime ? name_of(*d.regime) : "-"};
  if (d.shares) {
    row.insert(row.end(), {bar_of(*d.shares), percent(d.shares->overhead()),
                           percent(d.shares->bandwidth), percent(d.shares->compute)});
  } else {
    row.insert(row.end(), 4, "-");
  }
  row.insert(row.end(), {d.busy() ? percent(*d.busy()) : "-", number_text(d.flops.rate * 1e-9),
                         percent(d.flops.share), number_text(d.bytes.rate * 1e-9),
                         percent(d.bytes.share), fmt::format("{:+.0f} %", 100 * mode.error())});
  return row;
}

// The names of the modes in the order of their times.
template <class Time>
std::string ordered(std::span<const measure::ComparedMode> modes, Time time) {
  std::vector<const measure::ComparedMode*> sorted;
  for (const measure::ComparedMode& mode : modes) sorted.push_back(&mode);
  std::ranges::stable_sort(sorted, {}, [&](const auto* mode) { return time(*mode); });
  std::vector<std::string> names;
  for (const measure::ComparedMode* mode : sorted) names.push_back(mode->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string order_text(std::span<const measure::ComparedMode> modes) {
  using measure::ComparedMode;
  const std::string predicted =
      ordered(modes, [](const ComparedMode& mode) { return mode.predicted.ps(); });
  const std::string measured =
      ordered(modes, [](const ComparedMode& mode) { return mode.measured.median; });
  if (predicted == measured) return fmt::format("fastest first: {}, as predicted", measured);
  return fmt::format(
      "fastest first: {}; predicted: {}: {}", measured, predicted,
      order_is_right(modes) ? "right, but for modes as fast as each other" : "wrong");
}

// Of a mode with a timeline: "host 66 % (add 30 %, matmul 22 %), latency 5 %".
std::string idle_text(const measure::Diagnosis& d) {
  constexpr std::size_t kMostWaits = 3;
  constexpr double kLeast = 0.005;
  std::vector<std::string> causes, waits;
  for (std::size_t i = 0; i < std::min(kMostWaits, d.waits.size()); ++i) {
    const auto& [name, share] = d.waits[i];
    if (share >= kLeast)
      waits.push_back(
          fmt::format("{} {}", name.empty() ? "outside of calls" : name, percent(share)));
  }
  for (std::size_t i = 0; i < measure::kIdleCauses.size(); ++i) {
    const double share = (*d.idle_by_cause)[i];
    if (share < kLeast) continue;
    causes.push_back(fmt::format("{} {}", measure::kIdleCauses[i], percent(share)));
    if (measure::IdleCause(i) == measure::IdleCause::host && !waits.empty())
      causes.back() += fmt::format(" ({})", fmt::join(waits, ", "));
  }
  return causes.empty() ? "none" : fmt::format("{}", fmt::join(causes, ", "));
}

// Why modes have no verdict: what stands against all of them, then what does against each.
std::vector<std::string> problems_of(const Comparison& comparison) {
  const auto is_of_all = [&](const std::string& problem) {
    return std::ranges::all_of(comparison.sides, [&](const Side& side) {
      return std::ranges::count(side.diagnosis.problems, problem) > 0;
    });
  };
  std::vector<std::string> problems;
  for (const std::string& problem : comparison.sides.front().diagnosis.problems) {
    if (is_of_all(problem)) problems.push_back(problem);
  }
  for (const Side& side : comparison.sides) {
    std::vector<std::string> own = side.diagnosis.problems;
    std::erase_if(own, is_of_all);
    if (!own.empty())
      problems.push_back(fmt::format("on {}: {}", name_of(side), fmt::join(own, "; ")));
  }
  return problems;
}

std::vector<std::string> columns_of(const Comparison& comparison) {
  const bool on_cpu = comparison.sides.front().options.toy.device.is_cpu();
  return {"",
          "regime",
          "shares",
          "overhead",
          "bandwidth",
          "compute",
          on_cpu ? "in kernels" : "busy",
          "GFLOP/s",
          "of ceiling",
          "GB/s",
          "of ceiling",
          "prediction"};
}

}  // namespace

std::string bar_of(const measure::Shares& shares) {
  constexpr double kWidth = 20;
  const auto cells = [](double share) {
    return static_cast<std::size_t>(std::lround(kWidth * std::clamp(share, 0.0, 1.0)));
  };
  const std::size_t overhead = cells(shares.overhead()),
                    rest = cells(shares.overhead() + shares.bandwidth),
                    all = static_cast<std::size_t>(kWidth);
  return std::string(overhead, 'o') + std::string(rest - overhead, '=') +
         std::string(all - rest, '#');
}

std::string verdict_text(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows = {columns_of(comparison)};
  const std::vector<measure::ComparedMode> modes = modes_of(comparison);
  for (const measure::ComparedMode& mode : modes) rows.push_back(row_of(mode));
  std::string text;
  for (const std::string& row : aligned(rows)) text += row + "\n";
  text += "shares: o overhead, = bandwidth, # compute; prediction: its error\n";
  line(text, "order", order_text(modes));
  for (const Side& side : comparison.sides) {
    if (side.diagnosis.idle_by_cause)
      line(text, "idle", fmt::format("{}: {}", name_of(side), idle_text(side.diagnosis)));
    if (side.doubling) {
      line(text, "twice the batch",
           fmt::format("{}: {}: {}", name_of(side),
                       measure::kDoublings[static_cast<std::size_t>(side.doubling->judgement)],
                       side.doubling->text));
    }
  }
  for (const std::string& problem : problems_of(comparison)) line(text, "no verdict", problem);
  const std::string verdict = measure::verdict_on(modes);
  if (!verdict.empty()) line(text, "verdict", verdict);
  return text;
}

measure::Section verdict_section(const Comparison& comparison) {
  constexpr std::ptrdiff_t kBar = 2;  // the column of bars, for terminals
  const std::vector<measure::ComparedMode> modes = modes_of(comparison);
  measure::Section section{.title = "Verdict"};
  std::string verdict = measure::verdict_on(modes);
  if (!verdict.empty()) section.blocks.emplace_back(measure::Text{verdict + "."});
  for (const std::string& problem : problems_of(comparison))
    section.blocks.emplace_back(measure::Text{"No verdict: " + problem + "."});
  measure::Table table{.caption =
                           "What each step's time goes into; FLOPs and bytes relative to "
                           "the ceilings; the error of the prediction",
                       .columns = columns_of(comparison),
                       .rows = {}};
  table.columns.erase(table.columns.begin() + kBar);
  table.columns.front() = "mode";
  for (const measure::ComparedMode& mode : modes) {
    table.rows.push_back(row_of(mode));
    table.rows.back().erase(table.rows.back().begin() + kBar);
  }
  section.blocks.emplace_back(std::move(table));
  section.blocks.emplace_back(measure::Text{"Order of the modes: " + order_text(modes) + "."});
  return section;
}

}  // namespace brrr::cli
