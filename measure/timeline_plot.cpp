#include "brrr/measure/timeline_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace brrr::measure {
namespace {

// Kinds of spans in the plot, in the order of its legend.
enum class Kind : std::uint8_t { replay, call, launch, allocation, wait, kernel, copy };
constexpr std::array<const char*, kLaneColors> kKinds = {
    "replays", "calls", "launches", "allocation", "waiting", "kernels", "copies, fills"};
// Where a kind is a part of a step that other plots show, its color there: waiting is overhead,
// kernels compute, copies take bandwidth.
constexpr std::array<std::size_t, kKinds.size()> kColors = {6, 5, 4, 3, 1, 2, 0};

Kind kind_of(HostWork work) {
  switch (work) {
    case HostWork::replay: return Kind::replay;
    case HostWork::launch: return Kind::launch;
    case HostWork::allocation: return Kind::allocation;
    case HostWork::wait: return Kind::wait;
    default: return Kind::call;
  }
}

Kind kind_of(DeviceWork work) { return work == DeviceWork::kernel ? Kind::kernel : Kind::copy; }

const HostSpan& median_step(const std::vector<HostSpan>& steps) {
  std::vector<const HostSpan*> sorted;
  for (const HostSpan& step : steps) sorted.push_back(&step);
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle, {},
                           [](const HostSpan* step) { return step->end_ns - step->start_ns; });
  return **middle;
}

// The spans of a step by lane: the host's threads, then the device's streams.
class Lanes {
 public:
  // A unit of the axis has so many nanoseconds.
  Lanes(const HostSpan& step, double unit) : step_(step), unit_(unit) {}

  void add_host(const HostSpan& span) {
    if (span.work != HostWork::step)
      add({0, span.thread}, kind_of(span.work), span.start_ns, span.end_ns);
  }
  void add_device(const DeviceSpan& span) {
    add({1, span.stream}, kind_of(span.work), span.start_ns, span.end_ns);
  }

  // Names only the kinds that a span has; each has its color.
  void move_to(LanePlot& plot) {
    std::array<std::size_t, kKinds.size()> index{};
    for (std::size_t i = 0; i < kKinds.size(); ++i) {
      index[i] = plot.kinds.size();
      if (!present_[i]) continue;
      plot.kinds.emplace_back(kKinds[i]);
      plot.colors.push_back(kColors[i]);
    }
    for (auto& [lane, spans] : lanes_) {
      for (LanePlot::Span& span : spans) span.kind = index[span.kind];
      std::ranges::stable_sort(spans, {}, &LanePlot::Span::start);
      const auto& [where, number] = lane;
      const char* const name = where == 0 ? "host" : "device";
      plot.lanes.push_back(
          {number == 0 ? name
                       : fmt::format("{}, {} {}", name, where == 0 ? "thread" : "stream", number),
           std::move(spans)});
    }
  }

 private:
  void add(std::pair<int, int> lane, Kind kind, std::int64_t start_ns, std::int64_t end_ns) {
    const std::int64_t from = std::max(start_ns, step_.start_ns),
                       to = std::min(end_ns, step_.end_ns);
    if (from >= to) return;
    const auto place = [&](std::int64_t at) {
      return static_cast<double>(at - step_.start_ns) / unit_;
    };
    lanes_[lane].push_back({place(from), place(to), static_cast<std::size_t>(kind)});
    present_[static_cast<std::size_t>(kind)] = true;
  }

  const HostSpan& step_;
  double unit_;
  std::map<std::pair<int, int>, std::vector<LanePlot::Span>> lanes_;
  std::array<bool, kKinds.size()> present_{};
};

// Of an axis with the time since the step began, as long as the longest of some steps.
struct TimeUnit {
  double ns;
  const char* axis;
};
TimeUnit unit_of(double end_us) {
  constexpr double kMillisecond = 1e6;
  return end_us >= kMillisecond * 1e-3 ? TimeUnit{kMillisecond, "ms since the step began"}
                                       : TimeUnit{1e3, "µs since the step began"};
}

}  // namespace

double step_us(const Timeline& timeline) {
  if (timeline.steps.empty()) return 0;
  const HostSpan& step = median_step(timeline.steps);
  return static_cast<double>(step.end_ns - step.start_ns) * 1e-3;
}

LanePlot lane_plot(const Timeline& timeline, std::string title, double end_us) {
  end_us = std::max(end_us, step_us(timeline));
  const TimeUnit unit = unit_of(end_us);
  LanePlot plot{.title = std::move(title),
                .description = "What the host calls and what the device runs during one step.",
                .x = unit.axis};
  if (timeline.steps.empty()) return plot;
  const HostSpan& step = median_step(timeline.steps);
  plot.end = end_us * 1e3 / unit.ns;
  Lanes lanes(step, unit.ns);
  for (const HostSpan& span : timeline.host) lanes.add_host(span);
  for (const DeviceSpan& span : timeline.spans) lanes.add_device(span);
  lanes.move_to(plot);
  return plot;
}

std::optional<LinePlot> memory_plot(const Timeline& timeline, std::string title, double end_us) {
  if (timeline.steps.empty()) return std::nullopt;
  const TimeUnit unit = unit_of(std::max(end_us, step_us(timeline)));
  const HostSpan& step = median_step(timeline.steps);
  Series series{"live tensors", {}};
  std::int64_t most = 0;
  for (const MemorySample& sample : timeline.memory) {
    if (sample.at_ns < step.start_ns || sample.at_ns > step.end_ns) continue;
    most = std::max(most, sample.bytes);
    series.points.emplace_back(static_cast<double>(sample.at_ns - step.start_ns) / unit.ns,
                               static_cast<double>(sample.bytes));
  }
  if (series.points.empty()) return std::nullopt;
  constexpr double kKiB = 1024, kMiB = 1024 * kKiB;
  const bool large = static_cast<double>(most) >= kMiB;
  for (auto& [at, bytes] : series.points) bytes /= large ? kMiB : kKiB;
  return LinePlot{.title = std::move(title),
                  .description = "Measured after each op of one step.",
                  .x = {unit.axis},
                  .y = {large ? "MiB of live tensors" : "KiB of live tensors"},
                  .series = {std::move(series)},
                  .steps = true};
}

}  // namespace brrr::measure
