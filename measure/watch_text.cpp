// The report of watched steps as text, as a document and as a page.
#include <fmt/format.h>

#include <algorithm>

#include "brrr/measure/json_parts.h"
#include "brrr/measure/report_file.h"
#include "brrr/measure/text.h"
#include "brrr/measure/verdict_text.h"
#include "brrr/measure/watch.h"
#include "brrr/tensor/counted.h"

namespace brrr::measure {
namespace {

constexpr const char* kNothing =
    "no compiled step was called often enough to look at: brrr::compile makes one\n";

double predicted(const core::LaunchCost& launch) {
  return static_cast<double>(launch.predicted.ps()) * 1e-12;
}

// Equal launches together, those with the most predicted time first.
struct Kernel {
  const core::LaunchCost* cost = nullptr;
  int launches = 0;
  double seconds = 0;
};
std::vector<Kernel> kernels_of(const WatchedStep& step) {
  std::vector<Kernel> kernels;
  for (const core::LaunchCost& launch : step.launches) {
    const auto equal = std::ranges::find_if(kernels, [&](const Kernel& each) {
      return each.cost->name == launch.name && each.cost->result == launch.result &&
             each.cost->module == launch.module && each.cost->phase == launch.phase;
    });
    Kernel& kernel = equal != kernels.end() ? *equal : kernels.emplace_back(Kernel{&launch});
    ++kernel.launches;
    kernel.seconds += predicted(launch);
  }
  std::ranges::stable_sort(kernels, std::ranges::greater(), &Kernel::seconds);
  return kernels;
}

std::string calls_text(const WatchedStep& step) {
  const std::string eager =
      step.eager_calls > 0 ? ", " + counted(step.eager_calls, "eager call") : "";
  return fmt::format("{}{}, {}, {}", counted(step.calls, "replay"), eager,
                     name_of(step.entry->mode),
                     step.entry->signature == "()" ? "no arguments" : step.entry->signature);
}

// What the time from one call to the next goes to.
std::string time_line(const WatchedStep& step) {
  if (!(step.period.median > 0)) return "called too seldom to time";
  return fmt::format("a call every {}: {} your code between calls, {} in the call",
                     time_text(step.period.median), percent_text(step.outside_share()),
                     time_text(step.in_call.median));
}

std::string regime_line(const WatchedStep& step) {
  if (!step.diagnosis) return "called too seldom to judge";
  if (step.outside_share() > 0.5)
    return "bound by your code between calls; apart from it " + to_string(*step.diagnosis);
  return to_string(*step.diagnosis);
}

std::string prediction_line(const WatchedStep& step) {
  const CompiledEntry& entry = *step.entry;
  const double seconds = static_cast<double>(entry.predicted.ps()) * 1e-12,
               least = static_cast<double>(entry.roofline.bound.ps()) * 1e-12;
  return fmt::format("{} predicted, {} at the {} ceilings; {}", time_text(seconds),
                     time_text(least), entry.calibrated ? "measured" : "default",
                     counted(static_cast<std::int64_t>(step.launches.size()), "kernel"));
}

std::string memory_line(const WatchedStep& step) {
  return fmt::format("{} planned for the step; all live tensors at most {}",
                     bytes_text(step.entry->planned_bytes()), bytes_text(step.peak_bytes));
}

// What to do, in a sentence: what is derived, and not tried, says so.
std::string advice_line(const WatchedStep& step) {
  if (step.outside_share() > 0.5)
    return "look at what your program does between calls, such as loading data or printing";
  if (!step.diagnosis || step.diagnosis->advice.empty()) return {};
  return step.diagnosis->advice + " (derived, not tried)";
}

std::vector<std::pair<const char*, std::string>> lines_of(const WatchedStep& step) {
  std::vector<std::pair<const char*, std::string>> lines = {{"called", calls_text(step)},
                                                            {"time", time_line(step)},
                                                            {"regime", regime_line(step)},
                                                            {"predicted", prediction_line(step)},
                                                            {"memory", memory_line(step)}};
  if (const std::string advice = advice_line(step); !advice.empty())
    lines.emplace_back("try", advice);
  return lines;
}

Json describe_timing(const Timing& timing) {
  if (!(timing.median > 0)) return nullptr;
  return {{"us", timing.median * 1e6}, {"spread", timing.spread}, {"samples", timing.samples}};
}

}  // namespace

std::string to_text(const std::vector<WatchedStep>& steps) {
  constexpr std::size_t kKernels = 5;
  if (steps.empty()) return std::string("brrr: ") + kNothing;
  std::string text;
  for (const WatchedStep& step : steps) {
    text += fmt::format("brrr: {}\n", step.name);
    for (const auto& [name, value] : lines_of(step)) line(text, name, value);
    const std::vector<Kernel> kernels = kernels_of(step);
    for (std::size_t i = 0; i < std::min(kKernels, kernels.size()); ++i) {
      const core::LaunchCost& cost = *kernels[i].cost;
      line(text, i == 0 ? "kernels" : "",
           fmt::format("{:>9}  {} x {} of {}{}", time_text(kernels[i].seconds), kernels[i].launches,
                       cost.name, cost.result, cost.module.empty() ? "" : " in " + cost.module));
    }
  }
  return text;
}

std::string to_json(const std::vector<WatchedStep>& steps, const Machine& machine) {
  Json list = Json::array();
  for (const WatchedStep& step : steps) {
    Json kernels = Json::array();
    for (const Kernel& kernel : kernels_of(step)) {
      kernels.push_back({{"name", kernel.cost->name},
                         {"result", kernel.cost->result},
                         {"module", or_null(kernel.cost->module)},
                         {"phase", kernel.cost->phase},
                         {"launches", kernel.launches},
                         {"flops", kernel.cost->flops},
                         {"bytes", kernel.cost->bytes},
                         {"predicted_us", kernel.seconds * 1e6}});
    }
    Json one = {{"name", step.name},
                {"signature", step.entry->signature},
                {"mode", name_of(step.entry->mode)},
                {"device", to_string(step.entry->device)},
                {"replays", step.calls},
                {"eager_calls", step.eager_calls},
                {"period", describe_timing(step.period)},
                {"in_call", describe_timing(step.in_call)},
                {"between_calls", describe_timing(step.outside)},
                {"between_calls_share", step.outside_share()},
                {"predicted_us", static_cast<double>(step.entry->predicted.ps()) * 1e-6},
                {"planned_bytes", step.entry->planned_bytes()},
                {"peak_bytes", step.peak_bytes},
                {"diagnosis", step.diagnosis ? describe(*step.diagnosis) : Json(nullptr)},
                {"kernels", std::move(kernels)}};
    list.push_back(std::move(one));
  }
  return text_of({{"steps", std::move(list)}, {"machine", describe(machine)}});
}

Report to_report(const std::vector<WatchedStep>& steps, const Machine& machine,
                 const std::string& command) {
  const Device device = steps.empty() ? Device::cpu() : steps.front().entry->device;
  Report report{.title = "What the program's steps do",
                .facts = report_facts(machine, device, command)};
  if (steps.empty()) report.sections.push_back({.title = "Steps", .blocks = {Text{kNothing}}});
  for (const WatchedStep& step : steps) {
    Section section{.title = step.name};
    for (const auto& [name, value] : lines_of(step))
      section.blocks.emplace_back(Text{fmt::format("{}: {}.", name, value)});
    if (step.period.median > 0) {
      BarPlot plot{.title = "From one call to the next",
                   .description = "Medians of the calls that the program made.",
                   .unit = "us",
                   .measures = {"measured"}};
      plot.groups = {{"between calls", {step.outside.median * 1e6}},
                     {"in the call", {step.in_call.median * 1e6}},
                     {"predicted", {static_cast<double>(step.entry->predicted.ps()) * 1e-6}}};
      section.blocks.emplace_back(Figure{std::move(plot), time_line(step) + "."});
    }
    Table table{
        "Kernels by predicted time", {"kernel", "result", "module", "phase", "launches", "us"}, {}};
    for (const Kernel& kernel : kernels_of(step)) {
      table.rows.push_back({kernel.cost->name, kernel.cost->result, kernel.cost->module,
                            kernel.cost->phase, std::to_string(kernel.launches),
                            fmt::format("{:.3g}", kernel.seconds * 1e6)});
    }
    section.blocks.emplace_back(std::move(table));
    report.sections.push_back(std::move(section));
  }
  return report;
}

}  // namespace brrr::measure
