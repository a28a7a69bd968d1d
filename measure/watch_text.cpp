// The report of watched steps as text, as a document and as a page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <span>

#include "brrr/measure/json_parts.h"
#include "brrr/measure/kernel_groups.h"
#include "brrr/measure/report_file.h"
#include "brrr/measure/text.h"
#include "brrr/measure/verdict_text.h"
#include "brrr/measure/watch.h"
#include "brrr/tensor/counted.h"

namespace brrr::measure {
namespace {

constexpr const char* kNothing =
    "no step was called often enough to look at: compiled ones are, which brrr::compile makes, and "
    "eager ones that end with Optimizer::step\n";

// "" in a program whose steps all are of its first thread.
std::string threads_text(const WatchedStep& step) {
  if (step.threads.empty() || step.threads == std::vector{1}) return "";
  return fmt::format(", on thread{} {}", step.threads.size() > 1 ? "s" : "",
                     fmt::join(step.threads, ", "));
}

std::string calls_text(const WatchedStep& step) {
  if (!step.entry)
    return counted(step.calls, "step") + ", eager, to an update by an optimizer" +
           threads_text(step);
  const std::string eager =
      step.eager_calls > 0 ? ", " + counted(step.eager_calls, "eager call") : "";
  return fmt::format("{}{}, {}, {}{}", counted(step.calls, "replay"), eager, name_of(step.mode()),
                     step.entry->signature == "()" ? "no arguments" : step.entry->signature,
                     threads_text(step));
}

// What the time from one call to the next goes to.
std::string time_line(const WatchedStep& step) {
  if (!(step.period.median > 0)) return "called too seldom to time";
  if (!step.entry && step.code.empty())
    return fmt::format("a step every {}", time_text(step.period.median));
  return fmt::format("a {} every {}: {} your code{}, {} in {}", step.entry ? "call" : "step",
                     time_text(step.period.median), percent_text(step.outside_share()),
                     step.entry ? " between calls" : "", time_text(step.in_call.median),
                     !step.entry               ? "brrr"
                     : step.threads.size() > 1 ? "the call, with waiting for other threads"
                                               : "the call");
}

// A line's share of the time from one call to the next. Samples of an eager step are of all of it.
double share_of(const CodeLine& line, const WatchedStep& step) {
  return line.share * (step.entry ? step.outside_share() : 1);
}

// Where the program's own code is, if it takes time worth a line.
std::string code_line(const WatchedStep& step) {
  constexpr std::size_t kLines = 3;
  constexpr double kWorth = 0.02;
  if (!step.why_no_code.empty()) return "not sampled: " + step.why_no_code;
  std::string text;
  if (step.sampled && !step.code.empty())
    text = fmt::format("in {} of {} (sampling ended: {}): ", time_text(step.sampled->seconds),
                       time_text(step.sampled->of), step.sampled->ended);
  const std::size_t head = text.size();
  for (const CodeLine& line : std::span(step.code).first(std::min(kLines, step.code.size()))) {
    if (share_of(line, step) < kWorth) break;
    if (text.size() > head) text += "; ";
    text += fmt::format("{} {}", percent_text(share_of(line, step)), to_string(line));
  }
  return text.size() > head ? text : "";
}

std::string regime_line(const WatchedStep& step) {
  std::string own;
  if (step.outside_share() > 0.5)
    own = step.entry ? "bound by your own code between calls" : "bound by your own code";
  if (step.diagnosis) {
    const std::string rest = to_string(*step.diagnosis);
    return own.empty() ? rest : fmt::format("{}; apart from it {}", own, rest);
  }
  if (!own.empty()) return own;
  if (step.entry || !(step.period.median > 0)) return "called too seldom to judge";
  return step.device.is_cuda()
             ? "eager steps on CUDA are not judged as they run; measure::compare judges them"
         : step.why_no_code.empty() ? "called too seldom to judge"
                                    : "not judged, since its own code is not known";
}

std::string prediction_line(const WatchedStep& step) {
  if (step.predicted.ps() == 0) return "";  // its calls were not counted
  const std::string kernels = counted(static_cast<std::int64_t>(step.launches.size()), "kernel");
  const std::string time = time_text(step.predicted.seconds());
  if (!step.entry) return fmt::format("{} in brrr; {}", time, kernels);
  const double least = step.entry->roofline.bound.seconds();
  return fmt::format("{} predicted, {} at the {} ceilings; {}", time, time_text(least),
                     step.entry->calibrated ? "measured" : "default", kernels);
}

// "27 µs predicted, 1.6 times as fast"
std::string other_line(const WatchedStep& step, const PredictedMode& other) {
  if (!other.predicted) return "not predicted: " + other.why_not;
  const std::string time = time_text(other.predicted->seconds()) + " predicted";
  const std::optional<double> gain = step.gain_of(other);
  if (!gain) return time;
  if (*gain == 1) return time + ", not faster by 5 %";
  return fmt::format("{}, {:.2g} times as fast{}", time, *gain,
                     step.outside_share() > 0.05 ? " with your code" : "");
}

std::string memory_line(const WatchedStep& step) {
  const std::string live = "all live tensors at most " + bytes_text(step.peak_bytes);
  if (!step.entry) return live;
  return fmt::format("{} planned for the step; {}", bytes_text(step.entry->planned_bytes()), live);
}

// What to do, in a sentence: what is derived, and not tried, says so.
std::string advice_line(const WatchedStep& step) {
  if (step.outside_share() > 0.5) {
    const auto most = std::ranges::find(step.code, false, &CodeLine::calls_brrr);
    if (most == step.code.end())
      return "look at what your program does between calls, such as loading data or printing";
    return fmt::format("look at {}, where {} of the time goes", most->place,
                       percent_text(share_of(*most, step)));
  }
  if (!step.diagnosis || step.diagnosis->advice.empty()) return {};
  return step.diagnosis->advice + " (derived, not tried)";
}

std::vector<std::pair<const char*, std::string>> lines_of(const WatchedStep& step) {
  std::vector<std::pair<const char*, std::string>> lines = {
      {"called", calls_text(step)},
      {"time", time_line(step)},
      {step.entry ? "your code" : "lines", code_line(step)},
      {"regime", regime_line(step)},
      {"predicted", prediction_line(step)}};
  for (const PredictedMode& each : step.others)
    lines.emplace_back(name_of(each.mode), other_line(step, each));
  lines.emplace_back("memory", memory_line(step));
  lines.emplace_back("try", advice_line(step));
  std::erase_if(lines, [](const auto& each) { return each.second.empty(); });
  return lines;
}

Json describe(const WatchedStep& step, const PredictedMode& other) {
  const auto us = [](const core::StepTime& time) { return time.seconds() * 1e6; };
  return {{"mode", name_of(other.mode)},
          {"predicted_us", other.predicted ? Json(us(*other.predicted)) : Json(nullptr)},
          {"times_as_fast", or_null(step.gain_of(other))},
          {"why_not", or_null(other.why_not)}};
}

Json describe_part(const std::optional<SampledPart>& part) {
  if (!part) return nullptr;
  return {{"seconds", part->seconds}, {"of_seconds", part->of}, {"ended", part->ended}};
}

Json describe_timing(const Timing& timing) {
  if (!(timing.median > 0)) return nullptr;
  return {{"us", timing.median * 1e6}, {"spread", timing.spread}, {"samples", timing.samples}};
}

// The measured time of the mode that the program used, beside the predicted times of all modes.
Figure modes_figure(const WatchedStep& step) {
  constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
  BarPlot plot{.title = "Time of a step by mode",
               .description = "Without the program's own code.",
               .unit = "us",
               .measures = {"measured, median", "predicted"}};
  const bool on_device = step.diagnosis && step.diagnosis->device_time && step.device.is_cuda();
  const double measured = on_device ? *step.diagnosis->device_time : step.in_call.median;
  plot.groups.push_back(
      {name_of(step.mode()),
       {measured > 0 ? measured * 1e6 : kMissing, step.predicted.seconds() * 1e6}});
  std::string caption;
  for (const PredictedMode& each : step.others) {
    if (each.predicted)
      plot.groups.push_back({name_of(each.mode), {kMissing, each.predicted->seconds() * 1e6}});
    caption += fmt::format("{}{}: {}", caption.empty() ? "" : "; ", name_of(each.mode),
                           other_line(step, each));
  }
  return {std::move(plot), caption + "."};
}

}  // namespace

std::string to_text(const std::vector<WatchedStep>& steps) {
  constexpr std::size_t kKernels = 5;
  if (steps.empty()) return std::string("brrr: ") + kNothing;
  std::string text;
  for (const WatchedStep& step : steps) {
    text += fmt::format("brrr: {}\n", step.name);
    for (const auto& [name, value] : lines_of(step)) line(text, name, value);
    const std::vector<KernelGroup> kernels = grouped(step.launches);
    for (std::size_t i = 0; i < std::min(kKernels, kernels.size()); ++i) {
      const core::LaunchCost& cost = *kernels[i].cost;
      const std::string where = kernels[i].where();
      line(text, i == 0 ? "kernels" : "",
           fmt::format("{:>9}  {} x {} of {}{}{}", time_text(kernels[i].seconds), kernels[i].count,
                       cost.name, cost.result, where.empty() ? "" : ", ", where));
    }
  }
  return text;
}

std::string to_json(const std::vector<WatchedStep>& steps, const Machine& machine) {
  Json list = Json::array();
  for (const WatchedStep& step : steps) {
    Json kernels = Json::array();
    for (const KernelGroup& kernel : grouped(step.launches)) {
      kernels.push_back({{"name", kernel.cost->name},
                         {"result", kernel.cost->result},
                         {"module", or_null(kernel.module())},
                         {"phase", or_null(kernel.phase())},
                         {"line", or_null(kernel.line())},
                         {"launches", kernel.count},
                         {"flops", kernel.cost->flops},
                         {"bytes", kernel.cost->bytes},
                         {"predicted_us", kernel.seconds * 1e6}});
    }
    Json others = Json::array();
    for (const PredictedMode& each : step.others) others.push_back(describe(step, each));
    std::vector<CodeLine> code = step.code;
    for (CodeLine& line : code) line.share = share_of(line, step);
    Json one = {{"name", step.name},
                {"signature", step.entry ? Json(step.entry->signature) : Json(nullptr)},
                {"mode", name_of(step.mode())},
                {"device", to_string(step.device)},
                {"threads", step.threads},
                {"calls", step.calls},
                {"eager_calls", step.eager_calls},
                {"period", describe_timing(step.period)},
                {"in_call", describe_timing(step.in_call)},
                {"between_calls", describe_timing(step.outside)},
                {"between_calls_share", step.outside_share()},
                {"code", describe(code)},
                {"why_no_code", or_null(step.why_no_code)},
                {"sampled", describe_part(step.sampled)},
                {"predicted_us", step.predicted.seconds() * 1e6},
                {"other_modes", std::move(others)},
                {"planned_bytes", step.entry ? Json(step.entry->planned_bytes()) : Json(nullptr)},
                {"peak_bytes", step.peak_bytes},
                {"diagnosis", step.diagnosis ? describe(*step.diagnosis) : Json(nullptr)},
                {"kernels", std::move(kernels)}};
    list.push_back(std::move(one));
  }
  return text_of({{"steps", std::move(list)}, {"machine", describe(machine)}});
}

Report to_report(const std::vector<WatchedStep>& steps, const Machine& machine,
                 const std::string& command) {
  const Device device = steps.empty() ? Device::cpu() : steps.front().device;
  Report report{.title = "What the program's steps do",
                .facts = report_facts(machine, device, command)};
  if (steps.empty()) report.sections.push_back({.title = "Steps", .blocks = {Text{kNothing}}});
  for (const WatchedStep& step : steps) {
    Section section{.title = step.name};
    for (const auto& [name, value] : lines_of(step))
      section.blocks.emplace_back(Text{fmt::format("{}: {}.", name, value)});
    if (step.in_call.median > 0) {
      BarPlot plot{.title = "From one call to the next",
                   .description = "Medians of the calls that the program made.",
                   .unit = "us",
                   .measures = {"measured"}};
      plot.groups = {{step.entry ? "between calls" : "your code", {step.outside.median * 1e6}},
                     {step.entry ? "in the call" : "in brrr", {step.in_call.median * 1e6}}};
      section.blocks.emplace_back(Figure{std::move(plot), time_line(step) + "."});
    }
    section.blocks.emplace_back(modes_figure(step));
    if (!step.code.empty()) {
      Table code{step.entry ? "Your code between calls, by samples" : "Your code, by samples",
                 {"line", "is", "share", "samples"},
                 {}};
      for (const CodeLine& line : step.code) {
        code.rows.push_back({line.place,
                             line.waits        ? "waiting"
                             : line.calls_brrr ? "in brrr"
                                               : "computing",
                             percent_text(share_of(line, step)), std::to_string(line.samples)});
      }
      section.blocks.emplace_back(std::move(code));
    }
    Table table{"Kernels by predicted time",
                {"kernel", "result", "module", "phase", "line", "launches", "us"},
                {}};
    for (const KernelGroup& kernel : grouped(step.launches)) {
      table.rows.push_back({kernel.cost->name, kernel.cost->result, kernel.module(), kernel.phase(),
                            kernel.line(), std::to_string(kernel.count),
                            fmt::format("{:.3g}", kernel.seconds * 1e6)});
    }
    section.blocks.emplace_back(std::move(table));
    report.sections.push_back(std::move(section));
  }
  return report;
}

}  // namespace brrr::measure
