#include "cli/lab_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "cli/text_output.h"

namespace brrr::cli {
namespace {

using measure::number_text;

constexpr int kColumns = 64, kRows = 14;

// The range of one axis.
struct Axis {
  double least = std::numeric_limits<double>::infinity(), most = 0;

  void include(double value) {
    if (value <= 0) return;  // the axis is logarithmic
    least = std::min(least, value);
    most = std::max(most, value);
  }
  // The cell that contains the value, of `cells`.
  int cell(double value, int cells) const {
    if (most <= least) return 0;
    const double at = std::log(value / least) / std::log(most / least);
    return static_cast<int>(std::lround(at * (cells - 1)));
  }
  // The value in the middle of a cell.
  double value(int cell, int cells) const {
    return least * std::pow(most / least, static_cast<double>(cell) / (cells - 1));
  }
};

char letter_of(std::size_t series) { return static_cast<char>('a' + series); }

std::string reading_value(double value, const std::string& unit) {
  return number_text(value) + (unit.empty() ? "" : " " + unit);
}

}  // namespace

std::string to_text(std::span<const measure::Experiment> experiments) {
  std::size_t width = 0;
  for (const measure::Experiment& each : experiments)
    width = std::max(width, std::string(each.name).size());
  std::string text;
  for (const measure::Experiment& each : experiments)
    text += fmt::format("{:<{}}  {}: {}\n", each.name, width, each.title, each.claim);
  return text;
}

std::string to_text(const measure::Plot& plot) {
  Axis x, y;
  for (const measure::Series& series : plot.series) {
    for (const auto& [at, value] : series.points) {
      x.include(at);
      y.include(value);
    }
  }
  std::vector<std::string> canvas(kRows, std::string(kColumns, ' '));
  std::vector<std::string> legend;
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    legend.push_back(fmt::format("{}: {}", letter_of(i), plot.series[i].name));
    for (const auto& [at, value] : plot.series[i].points) {
      if (at <= 0 || value <= 0) continue;
      char& cell = canvas[static_cast<std::size_t>(kRows - 1 - y.cell(value, kRows))]
                         [static_cast<std::size_t>(x.cell(at, kColumns))];
      cell = cell == ' ' ? letter_of(i) : '*';
    }
  }
  std::string text;
  for (int row = 0; row < kRows; ++row) {
    const bool marked = row == 0 || row == kRows - 1 || row == kRows / 2;
    text += fmt::format("  {:>9} |{}\n", marked ? number_text(y.value(kRows - 1 - row, kRows)) : "",
                        canvas[static_cast<std::size_t>(row)]);
  }
  text += fmt::format("  {:>9} +{}\n", "", std::string(kColumns, '-'));
  const std::string first = number_text(x.least), last = number_text(x.most);
  const int gap = kColumns - static_cast<int>(first.size() + last.size());
  text += fmt::format("  {:>9}  {}{:^{}}{}\n", "", first, plot.x, gap, last);
  return text + fmt::format("  {:>9}  {} (* where they meet; logarithmic axes)\n", "",
                            fmt::join(legend, ", "));
}

std::string to_text(const ExperimentRun& found) {
  const measure::Experiment& e = *found.experiment;
  std::vector<std::vector<std::string>> rows = {{"  reading", "article", "here"}};
  for (const measure::Reading& r : found.finding.readings) {
    rows.push_back({"  " + r.name + (r.disturbed() ? " ~" : ""),
                    r.article ? reading_value(*r.article, r.unit) : "-",
                    reading_value(r.value, r.unit)});
  }
  std::string text = fmt::format("{}: {}\n  claim: {}\n", e.name, e.title, e.claim);
  for (const std::string& row : measure::aligned(rows)) text += row + "\n";
  if (found.finding.plot) text += to_text(*found.finding.plot);
  text += fmt::format("  {}\n  {}\n", found.finding.verdict(), found.finding.why);
  if (!found.finding.svg.empty())
    text += fmt::format("  --svg FILE or --report F.html writes the picture: {}\n", e.picture);
  if (found.finding.disturbed()) text += std::string("  ") + measure::kDisturbed;
  if (found.finding.gpu) {
    for (const std::string& what : measure::not_checked(*found.finding.gpu))
      text += fmt::format("  not checked: {}\n", what);
  }
  return text + "\n";
}

std::string summary_text(std::span<const ExperimentRun> found, const measure::LabOptions& options,
                         const measure::Machine& machine) {
  double seconds = 0;
  std::array<std::vector<std::string>, measure::kOutcomes.size()> by_outcome;
  for (const ExperimentRun& each : found) {
    seconds += each.seconds;
    by_outcome[static_cast<std::size_t>(each.finding.outcome())].emplace_back(
        each.experiment->name);
  }
  const auto& [confirmed, differing, undecided] = by_outcome;
  const bool on_cpu = options.device.is_cpu() || machine.gpus.empty();
  std::string text =
      fmt::format("{} of {} confirmed on {}{}, in {:.1f} s", confirmed.size(), found.size(),
                  on_cpu ? machine.processor.model : machine.gpus.front().name,
                  options.quick ? " with smaller sizes and few samples" : "", seconds);
  if (!differing.empty()) text += fmt::format("; differing: {}", fmt::join(differing, ", "));
  if (!undecided.empty()) text += fmt::format("; undecided: {}", fmt::join(undecided, ", "));
  return text + "\n";
}

}  // namespace brrr::cli
