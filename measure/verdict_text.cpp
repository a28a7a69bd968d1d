// The table of regimes, the verdict, and the lines on timelines and idle time of brrr compare.
#include "brrr/measure/verdict_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>

#include "brrr/measure/bench.h"
#include "brrr/measure/text.h"

namespace brrr::measure {

namespace {

std::vector<std::string> row_of(const ComparedMode& mode) {
  const Diagnosis& d = mode.diagnosis;
  const bool mixed = d.shares && d.shares->mixed_with();
  std::vector<std::string> row = {mode.name, mixed ? "mixed" : d.regime ? name_of(*d.regime) : "-"};
  if (d.shares) {
    row.push_back(bar_of(*d.shares, 20));
    const Percentages percent = percentages_of(*d.shares);
    for (const ShownShare& each : kShownShares)
      row.push_back(fmt::format("{} %", percent[static_cast<std::size_t>(each.regime)]));
  } else {
    row.insert(row.end(), 1 + std::size(kShownShares), "-");
  }
  row.insert(row.end(),
             {d.busy() ? percent_text(*d.busy()) : "-", number_text(d.flops.rate * 1e-9),
              percent_text(d.flops.share), number_text(d.bytes.rate * 1e-9),
              percent_text(d.bytes.share), fmt::format("{:+.0f} %", 100 * mode.error())});
  return row;
}

// The names of the modes in the order of their times.
template <class Time>
std::string ordered(std::span<const ComparedMode> modes, Time time) {
  std::vector<const ComparedMode*> sorted;
  for (const ComparedMode& mode : modes) sorted.push_back(&mode);
  std::ranges::stable_sort(sorted, {}, [&](const auto* mode) { return time(*mode); });
  std::vector<std::string> names;
  for (const ComparedMode* mode : sorted) names.push_back(mode->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string order_text(std::span<const ComparedMode> modes) {
  const std::string predicted =
      ordered(modes, [](const ComparedMode& mode) { return mode.predicted.ps(); });
  const std::string measured =
      ordered(modes, [](const ComparedMode& mode) { return mode.measured.median; });
  if (predicted == measured) return fmt::format("fastest first: {}, as predicted", measured);
  return fmt::format(
      "fastest first: {}; predicted: {}: {}", measured, predicted,
      order_is_right(modes) ? "right, but for modes as fast as each other" : "wrong");
}

}  // namespace

std::string idle_text(const Occupancy& occupancy) {
  constexpr std::size_t kMostSources = 3;
  constexpr double kLeast = 0.005;
  std::vector<std::string> causes;
  for (std::size_t i = 0; i < kIdleCauses.size(); ++i) {
    const double share = occupancy.share(occupancy.idle_ns[i]);
    if (share < kLeast) continue;
    std::vector<std::string> sources;
    for (const IdleSource& source : occupancy.sources) {
      const double part = occupancy.share(source.ns);
      if (source.cause != IdleCause(i) || part < kLeast || sources.size() == kMostSources) continue;
      sources.push_back(fmt::format("{} {}", to_string(source), percent_text(part)));
    }
    causes.push_back(
        fmt::format("{} {} ({})", kIdleCauses[i], percent_text(share), fmt::join(sources, ", ")));
  }
  return causes.empty() ? "none" : fmt::format("{}", fmt::join(causes, ", "));
}

namespace {

// "host 41 % by untraced timings (add (op) 20 %), divided as in recorded steps; recording made ..."
std::string estimate_text(const Diagnosis& d) {
  constexpr std::size_t kMostSources = 3;
  double all = 0;
  std::vector<std::string> sources;
  for (const IdleShare& each : d.idle_estimate) {
    all += each.share;
    if (sources.size() < kMostSources)
      sources.push_back(fmt::format("{} {}", to_string(each.source), percent_text(each.share)));
  }
  return fmt::format("host {} by untraced timings ({}), divided as in recorded steps; {}",
                     percent_text(all), fmt::join(sources, ", "), d.unattributed);
}

// A line for each mode whose idle time was attributed, and one for each reason why others' was not.
std::vector<std::string> idle_lines(const Comparison& comparison) {
  std::vector<std::string> lines;
  std::vector<std::pair<std::string, std::vector<std::string>>> unattributed;
  for (const Side& side : comparison.sides) {
    const Diagnosis& d = side.diagnosis;
    if (d.occupancy) {
      lines.push_back(fmt::format("{}: {}", side.name, idle_text(*d.occupancy)));
      continue;
    }
    if (!d.idle_estimate.empty()) {
      lines.push_back(fmt::format("{}: {}", side.name, estimate_text(d)));
      continue;
    }
    const auto reason =
        std::ranges::find(unattributed, d.unattributed, &decltype(unattributed)::value_type::first);
    if (reason != unattributed.end()) {
      reason->second.push_back(side.name);
    } else {
      unattributed.push_back({d.unattributed, {side.name}});
    }
  }
  for (const auto& [reason, modes] : unattributed)
    lines.push_back(fmt::format("{}: not attributed: {}", fmt::join(modes, ", "), reason));
  return lines;
}

// "3 steps of each mode, CUPTI 13.0; recording adds 14.0 % (eager), 11.7 % (graph)"
std::string recording_text(const Comparison& comparison) {
  std::vector<std::string> costs;
  const Timeline* timeline = nullptr;
  for (const Side& side : comparison.sides) {
    if (!side.timeline) continue;
    timeline = &*side.timeline;
    costs.push_back(fmt::format("{:.1f} % ({})", 100 * timeline->perturbation(), side.name));
  }
  if (!timeline) return {};
  return fmt::format("{} steps of each mode, by {}; recording adds {}", timeline->steps.size(),
                     timeline->source, fmt::join(costs, ", "));
}

// "graph: undecided between bandwidth and compute: twice the batch takes ..."
std::vector<std::string> doubling_lines(const Comparison& comparison) {
  std::vector<std::string> lines;
  for (const Side& side : comparison.sides) {
    if (!side.doubling) continue;
    lines.push_back(fmt::format(
        "{}: {}: {}", side.name,
        side.diagnosis.regime ? judgement_text(*side.doubling) : "there is no verdict to check",
        side.doubling->text));
  }
  return lines;
}

// The idle sources of all modes.
Table idle_table(const Comparison& comparison) {
  constexpr std::size_t kRows = 8;
  Table table{.caption = "Who caused the device's idle time, in recorded steps",
              .columns = {"mode", "cause", "source", "of the step", "us a step", "gaps a step"},
              .rows = {}};
  for (const Side& side : comparison.sides) {
    if (!side.diagnosis.occupancy) continue;
    const Occupancy& occupancy = *side.diagnosis.occupancy;
    const double steps = static_cast<double>(std::max<std::size_t>(occupancy.steps, 1));
    for (std::size_t i = 0; i < std::min(kRows, occupancy.sources.size()); ++i) {
      const IdleSource& source = occupancy.sources[i];
      table.rows.push_back({side.name, kIdleCauses[static_cast<std::size_t>(source.cause)],
                            to_string(source), percent_text(occupancy.share(source.ns)),
                            number_text(static_cast<double>(source.ns) * 1e-3 / steps),
                            number_text(static_cast<double>(source.gaps) / steps)});
    }
  }
  return table;
}

// Problems of several modes whose texts differ in their numbers only.
struct SameProblem {
  std::vector<std::string> words;                            // between the numbers
  std::vector<std::pair<std::string, std::string>> numbers;  // the least and the largest, each
  std::vector<std::string> modes;

  std::string text() const {
    std::string text = words.front();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto& [least, most] = numbers[i];
      text += (least == most ? least : least + " to " + most) + words[i + 1];
    }
    return text;
  }
};

SameProblem parsed(const std::string& problem) {
  SameProblem result{.words = {""}, .numbers = {}, .modes = {}};
  for (std::size_t at = 0; at < problem.size();) {
    const std::size_t end = std::min(problem.find_first_not_of("0123456789.", at), problem.size());
    if (std::isdigit(static_cast<unsigned char>(problem[at])) != 0) {
      const std::string number = problem.substr(at, end - at);
      result.numbers.emplace_back(number, number);
      result.words.emplace_back();
      at = end;
    } else {
      result.words.back() += problem[at++];
    }
  }
  return result;
}

void widen(std::pair<std::string, std::string>& range, const std::string& number) {
  if (std::stod(number) < std::stod(range.first)) range.first = number;
  if (std::stod(number) > std::stod(range.second)) range.second = number;
}

std::vector<std::string> columns_of(const Comparison& comparison) {
  std::vector<std::string> columns = {"", "regime", "shares"};
  for (const ShownShare& each : kShownShares) columns.emplace_back(name_of(each.regime));
  columns.insert(columns.end(), {comparison.device.is_cpu() ? "in kernels" : "busy", "GFLOP/s",
                                 "of ceiling", "GB/s", "of ceiling", "prediction"});
  return columns;
}

}  // namespace

std::vector<std::string> reasons_of(const Comparison& comparison,
                                    std::vector<std::string> Diagnosis::*which) {
  std::vector<SameProblem> merged;
  for (const Side& side : comparison.sides) {
    for (const std::string& problem : side.diagnosis.*which) {
      const SameProblem one = parsed(problem);
      const auto same = std::ranges::find(merged, one.words, &SameProblem::words);
      SameProblem& into = same != merged.end() ? *same : merged.emplace_back(one);
      for (std::size_t i = 0; i < one.numbers.size(); ++i)
        widen(into.numbers[i], one.numbers[i].first);
      into.modes.push_back(side.name);
    }
  }
  std::ranges::stable_sort(merged, std::ranges::greater(),
                           [](const SameProblem& each) { return each.modes.size(); });
  std::vector<std::string> problems;
  for (const SameProblem& each : merged) {
    const bool of_all = each.modes.size() == comparison.sides.size();
    problems.push_back(of_all ? each.text()
                              : fmt::format("on {}: {}", fmt::join(each.modes, ", "), each.text()));
  }
  return problems;
}

std::string bar_of(const Shares& shares, std::size_t width) {
  std::string bar;
  double sum = 0;
  for (const ShownShare& each : kShownShares) {
    sum += shares.of(each.regime);
    const auto end = static_cast<std::size_t>(
        std::lround(static_cast<double>(width) * std::clamp(sum, 0.0, 1.0)));
    bar.append(end - std::min(end, bar.size()), each.letter);
  }
  return bar;
}

std::string verdict_text(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows = {columns_of(comparison)};
  const std::vector<ComparedMode> modes = comparison.modes();
  for (const ComparedMode& mode : modes) rows.push_back(row_of(mode));
  std::string text;
  for (const std::string& row : aligned(rows)) text += row + "\n";
  std::vector<std::string> letters;
  for (const ShownShare& each : kShownShares)
    letters.push_back(fmt::format("{} {}", each.letter, each.name));
  text += fmt::format("shares: {}; prediction: its error\n", fmt::join(letters, ", "));
  line(text, "order", order_text(modes));
  const std::string recording = recording_text(comparison);
  if (!recording.empty()) line(text, "timeline", recording);
  for (const std::string& idle : idle_lines(comparison)) line(text, "idle", idle);
  for (const std::string& each : doubling_lines(comparison)) line(text, "twice the batch", each);
  for (const std::string& what : comparison.sides.front().diagnosis.not_checked)
    line(text, "not checked", what);
  for (const std::string& problem : reasons_of(comparison, &Diagnosis::problems))
    line(text, "no verdict", problem);
  for (const std::string& doubt : reasons_of(comparison, &Diagnosis::doubts))
    line(text, "in doubt", doubt);
  const std::string verdict = verdict_on(modes);
  if (!verdict.empty()) line(text, "verdict", verdict);
  return text;
}

namespace {

void erase_column(Table& table, std::size_t column) {
  const auto at = static_cast<std::ptrdiff_t>(column);
  table.columns.erase(table.columns.begin() + at);
  for (auto& row : table.rows) row.erase(row.begin() + at);
}

// The table of regimes without what a page need not have: bars, which its plot shows, and parts of
// a step that are few and in none.
Table regimes_table(const Comparison& comparison, const std::vector<ComparedMode>& modes) {
  constexpr std::size_t kBar = 2;
  Table table{.caption =
                  "What each step's time goes into; FLOPs and bytes relative to the ceilings; the "
                  "error of the prediction",
              .columns = columns_of(comparison),
              .rows = {}};
  for (const ComparedMode& mode : modes) table.rows.push_back(row_of(mode));
  for (std::size_t i = std::size(kShownShares); i-- > 0;) {
    const auto is_nothing = [&](const std::vector<std::string>& row) {
      return row[kBar + 1 + i] == "0 %" || row[kBar + 1 + i] == "-";
    };
    if (kShownShares[i].regime > Regime::compute && std::ranges::all_of(table.rows, is_nothing))
      erase_column(table, kBar + 1 + i);
  }
  erase_column(table, kBar);
  table.columns.front() = "mode";
  return table;
}

// What was tried on the fastest mode.
Table tried_table(const Comparison& comparison) {
  Table table{.caption = fmt::format("Changes that were tried on {}, timed in turn with it",
                                     comparison.fastest().name),
              .columns = {"change", "gain"},
              .rows = {}};
  for (const Tried& each : comparison.tried) {
    const std::string text = to_string(each);  // "bf16: 1.42 times as fast"
    table.rows.push_back({each.name, text.substr(each.name.size() + 2)});
  }
  return table;
}

}  // namespace

Section verdict_section(const Comparison& comparison) {
  const std::vector<ComparedMode> modes = comparison.modes();
  Section section{.title = "Verdict"};
  // What was tried is in a table.
  const std::string& advice = comparison.fastest().diagnosis.advice;
  if (comparison.tried.empty() && !advice.empty())
    section.blocks.emplace_back(Text{fmt::format("{}: {}.", comparison.fastest().name, advice)});
  for (const std::string& problem : reasons_of(comparison, &Diagnosis::problems))
    section.blocks.emplace_back(Text{"No verdict: " + problem + "."});
  for (const std::string& doubt : reasons_of(comparison, &Diagnosis::doubts))
    section.blocks.emplace_back(Text{"In doubt: " + doubt + "."});
  for (const std::string& what : comparison.sides.front().diagnosis.not_checked)
    section.blocks.emplace_back(Text{"Not checked: " + what + "."});
  section.blocks.emplace_back(regimes_table(comparison, modes));
  if (!comparison.tried.empty()) section.blocks.emplace_back(tried_table(comparison));
  section.blocks.emplace_back(Text{"Order of the modes: " + order_text(modes) + "."});
  for (const std::string& idle : idle_lines(comparison))
    section.blocks.emplace_back(Text{"Idle time of " + idle + "."});
  for (const std::string& each : doubling_lines(comparison))
    section.blocks.emplace_back(Text{"Twice the batch, " + each + "."});
  Table sources = idle_table(comparison);
  if (!sources.rows.empty()) section.blocks.emplace_back(std::move(sources));
  return section;
}

}  // namespace brrr::measure
