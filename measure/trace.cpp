#include "brrr/measure/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "brrr/io/file_bytes.h"
#include "brrr/measure/bench.h"
#include "brrr/measure/chrome_trace.h"
#include "brrr/measure/text.h"
#include "brrr/measure/trace_details.h"
#include "brrr/measure/verdict_text.h"
#include "brrr/tensor/counted.h"

namespace brrr::measure {
namespace {

std::string percent(std::int64_t part, std::int64_t whole) {
  return fmt::format("{:.0f} %", 100 * static_cast<double>(part) /
                                     static_cast<double>(std::max<std::int64_t>(whole, 1)));
}

// "3 recorded, 412 us each; untraced 400 us, so tracing costs 3.0 %"
std::string steps_text(const Timeline& timeline) {
  const auto mean = static_cast<double>(timeline.step_ns()) * 1e-3 /
                    static_cast<double>(std::max<std::size_t>(timeline.steps.size(), 1));
  const bool disturbed = timeline.untraced.disturbed() || timeline.traced.disturbed();
  return fmt::format("{} recorded, {} us each", timeline.steps.size(), number_text(mean)) +
         fmt::format("; traced {} us, untraced {} us: tracing adds {:.1f} %{}",
                     number_text(timeline.traced.median * 1e6),
                     number_text(timeline.untraced.median * 1e6), 100 * timeline.perturbation(),
                     disturbed ? ", disturbed" : "");
}

// The host's spans by kind. Spans nest, so the shares may add up to more than the step.
std::string host_text(const Timeline& timeline) {
  std::vector<std::string> parts;
  for (const HostWork work :
       {HostWork::op, HostWork::backward, HostWork::allocation, HostWork::launch, HostWork::replay,
        HostWork::trace, HostWork::wait}) {
    const std::int64_t ns = timeline.host_ns(work);
    const auto count = std::ranges::count(timeline.host, work, &HostSpan::work);
    if (count > 0)
      parts.push_back(
          fmt::format("{} {} ({})", count, name_of(work), percent(ns, timeline.step_ns())));
  }
  return fmt::format("{} spans: {}", timeline.host.size(), fmt::join(parts, ", "));
}

std::string device_text(const Timeline& timeline) {
  if (timeline.device.is_cpu()) return "kernels run inside of the host's ops";
  std::vector<std::string> parts;
  for (const DeviceWork work : {DeviceWork::kernel, DeviceWork::copy, DeviceWork::fill}) {
    const auto count = std::ranges::count(timeline.spans, work, &DeviceSpan::work);
    if (count > 0) parts.push_back(fmt::format("{} {}", count, name_of(work)));
  }
  const auto busy = static_cast<double>(timeline.busy_ns()) * 1e-3 /
                    static_cast<double>(std::max<std::size_t>(timeline.steps.size(), 1));
  return fmt::format(
      "{} spans: {}; busy {} us a step: {} of a traced one, {:.0f} % of an untraced one (idle "
      "{:.0f} %)",
      timeline.spans.size(), fmt::join(parts, ", "), number_text(busy),
      percent(timeline.busy_ns(), timeline.step_ns()), 100 * timeline.busy_share(),
      100 - 100 * timeline.busy_share());
}

}  // namespace

TraceResult trace(ModelRun run, int steps, const std::string& out) {
  require_writable("trace", out);  // before the training
  const Step step = run.trained();
  TraceResult result{run, out,
                     record_timeline(run.device, [&step] { step(); },
                                     {.steps = steps, .budget_seconds = run.seconds})};
  add_details(result.timeline, [&step] { step(); });
  const std::string text = chrome_trace(result.timeline, run.title());
  write_file("trace", out, [&](const ByteSink& sink) { sink(text.data(), text.size()); });
  return result;
}

std::optional<Occupancy> occupancy_of(const TraceResult& result) {
  const Timeline& timeline = result.timeline;
  if (!timeline.has_kernels() || !timeline.is_complete()) return std::nullopt;
  return occupancy_of(timeline);
}

std::string to_text(const TraceResult& result) {
  const Timeline& timeline = result.timeline;
  std::string text = heading_text(result.run);
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<16} {}\n", name, value);
  };
  line("written", result.out + ", for ui.perfetto.dev");
  line("source", timeline.source);
  line("steps", steps_text(timeline));
  if (const double slower = timeline.after.median / timeline.before.median - 1; slower > 0.05) {
    line("afterwards", fmt::format("untraced steps take {:.0f} % longer than before the recording",
                                   100 * slower));
  }
  line("host", host_text(timeline));
  line("device", device_text(timeline));
  if (const auto occupancy = occupancy_of(result)) line("idle", idle_text(*occupancy));
  if (timeline.perturbation() > kMostPerturbation) {
    line("caution", fmt::format("recording made the step {:.0f} % slower: shares are of recorded "
                                "steps, and may be others in untraced ones",
                                100 * timeline.perturbation()));
  }
  for (const std::string& each : timeline.missing) line("missing", each);
  if (!timeline.gpu) return text;
  for (const std::string& each : disturbances(*timeline.gpu)) line("disturbed", each);
  for (const std::string& each : not_checked(*timeline.gpu)) line("not checked", each);
  return text;
}

}  // namespace brrr::measure
