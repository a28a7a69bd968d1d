#include "cli/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <vector>

#include "brrr/tensor/fail.h"
#include "cli/text_output.h"

namespace brrr::cli {

using measure::aligned;
using measure::line;
using measure::number_text;

namespace {

std::string percent_text(double part) { return fmt::format("{:+.0f} %", part * 100); }

std::string numbers_of(const std::vector<const measure::SweptStep*>& steps) {
  std::vector<std::int64_t> numbers;
  for (const measure::SweptStep* step : steps) numbers.push_back(step->number);
  return numbers.empty() ? "none" : fmt::format("{}: {}", numbers.size(), fmt::join(numbers, ", "));
}

std::string summary_text(const measure::SweepSummary& summary, Device device) {
  const char* const names[] = {"eager", "graph", "fused"};
  std::string text;
  for (const measure::SweptStep* step : summary.failed)
    text += fmt::format("{} {} failed: {}\n", step->number, step->name, step->failure);
  line(text, "disagreeing", numbers_of(summary.disagreeing));
  line(text, "fused behind",
       fmt::format("{} (graph by more than {:g} %)", numbers_of(summary.behind),
                   measure::tolerance(device) * 100));
  if (summary.steps == 0) return text;
  line(text, "graph / fused", fmt::format("{:.2f}, the median", summary.gain));
  for (std::size_t i = 0; i < 3; ++i) {
    const measure::Errors& errors = summary.errors[i];
    line(text, fmt::format("{} predicted", names[i]),
         fmt::format("off by {:.0f} % (median), {:.0f} % (nine in ten), {:.0f} % (worst)",
                     errors.median * 100, errors.nine_in_ten * 100, errors.worst * 100));
  }
  line(text, "order predicted",
       fmt::format("right in {} of {} pairs of modes that differ by more than {:g} %",
                   summary.right_order, summary.ordered, measure::kLeastDifference * 100));
  line(text, "start",
       fmt::format("graph {} ms, fused {} ms, the medians", number_text(summary.start[1] * 1e3),
                   number_text(summary.start[2] * 1e3)));
  return text;
}

}  // namespace

std::string to_text(std::span<const measure::SweptStep> steps, Device device,
                    const measure::Machine& machine) {
  std::vector<std::vector<std::string>> rows = {{"step", "eager, us", "predicted", "graph, us",
                                                 "predicted", "fused, us", "predicted",
                                                 "graph / fused"}};
  for (const measure::SweptStep& step : steps) {
    if (step.modes.empty()) continue;
    std::vector<std::string>& row =
        rows.emplace_back(1, fmt::format("{} {}", step.number, step.name));
    for (const measure::SweptMode& mode : step.modes) {
      row.push_back(number_text(mode.seconds() * 1e6) + (mode.spread() > 0.1 ? " ~" : ""));
      row.push_back(percent_text(mode.error()));
    }
    row.push_back(fmt::format("{:.2f}", step.modes[1].seconds() / step.modes[2].seconds()));
  }
  std::string text = place_text(device, machine);
  for (const std::string& each : aligned(rows)) text += each + "\n";
  return text + summary_text(summarize(steps, device), device);
}

void require_agreement(std::span<const measure::SweptStep> steps) {
  for (const measure::SweptStep& step : steps) {
    if (!step.failure.empty())
      fail("[sweep] expected step {}, {}, to run, got: {}", step.number, step.name, step.failure);
    if (!step.agrees())
      fail("[sweep] expected the modes of step {}, {}, to have eager's losses", step.number,
           step.name);
  }
}

}  // namespace brrr::cli
