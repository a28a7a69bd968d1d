#include "brrr/measure/launch_times.h"

#include <algorithm>
#include <map>

namespace brrr::measure {
namespace {

// Nanoseconds by launch, of one replay.
using Replayed = std::map<std::size_t, std::int64_t>;

std::vector<Replayed> replays_on_cuda(const Timeline& timeline) {
  std::map<std::size_t, Replayed> replays;  // by host span
  std::map<std::pair<std::size_t, int>, std::int64_t> ends;
  for (const DeviceSpan& span : timeline.spans) {
    if (!span.launch || !span.lane || !span.cause) continue;
    std::int64_t& end = ends[{*span.cause, *span.lane}];
    replays[*span.cause][*span.launch] +=
        std::max<std::int64_t>(0, span.end_ns - std::max(span.start_ns, end));
    end = std::max(end, span.end_ns);
  }
  std::vector<Replayed> all;
  for (auto& [span, replayed] : replays) all.push_back(std::move(replayed));
  return all;
}

// The kernels of a replay on the CPU are the ops in its span, in order.
std::vector<Replayed> replays_on_cpu(const Timeline& timeline, std::size_t launches) {
  std::vector<Replayed> all;
  for (const HostSpan& replay : timeline.host) {
    if (replay.work != HostWork::replay) continue;
    Replayed replayed;
    for (const HostSpan& op : timeline.host) {
      if (op.work == HostWork::op && op.thread == replay.thread && op.start_ns >= replay.start_ns &&
          op.end_ns <= replay.end_ns)
        replayed[replayed.size()] = op.end_ns - op.start_ns;
    }
    if (replayed.size() == launches) all.push_back(std::move(replayed));
  }
  return all;
}

}  // namespace

std::vector<std::optional<double>> launch_seconds(const Timeline& timeline, std::size_t launches) {
  const std::vector<Replayed> replays =
      timeline.device.is_cpu() ? replays_on_cpu(timeline, launches) : replays_on_cuda(timeline);
  std::vector<std::optional<double>> result(launches);
  for (std::size_t launch = 0; launch < launches; ++launch) {
    std::vector<double> seconds;
    for (const Replayed& replay : replays) {
      if (const auto found = replay.find(launch); found != replay.end())
        seconds.push_back(static_cast<double>(found->second) * 1e-9);
    }
    if (seconds.empty() || seconds.size() < replays.size()) continue;
    result[launch] = summarize(std::move(seconds)).median;
  }
  return result;
}

}  // namespace brrr::measure
