// Finds idle gaps, the complement of the union of all streams' spans within the steps. Causes are
// those of Holistic Trace Analysis, plus dependences between streams.
#include "brrr/measure/idle.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <tuple>

#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

using std::int64_t;

struct TimeRange {
  int64_t start = 0, end = 0;
};

int64_t overlap(const TimeRange& a, const TimeRange& b) {
  return std::max<int64_t>(0, std::min(a.end, b.end) - std::max(a.start, b.start));
}

// Sorted, disjoint intervals that cover the same times.
std::vector<TimeRange> merged(std::vector<TimeRange> intervals) {
  std::erase_if(intervals, [](const TimeRange& i) { return i.end <= i.start; });
  std::ranges::sort(intervals, {}, &TimeRange::start);
  std::vector<TimeRange> result;
  for (const TimeRange& each : intervals) {
    if (result.empty() || each.start > result.back().end) {
      result.push_back(each);
    } else {
      result.back().end = std::max(result.back().end, each.end);
    }
  }
  return result;
}

int64_t length(std::span<const TimeRange> intervals) {
  int64_t sum = 0;
  for (const TimeRange& each : intervals) sum += each.end - each.start;
  return sum;
}

std::vector<TimeRange> steps_of(const Timeline& timeline) {
  std::vector<TimeRange> steps;
  for (const HostSpan& step : timeline.steps) steps.push_back({step.start_ns, step.end_ns});
  if (!steps.empty() || timeline.spans.empty()) return merged(std::move(steps));
  TimeRange all{timeline.spans.front().start_ns, timeline.spans.front().end_ns};
  for (const DeviceSpan& span : timeline.spans) {
    all.start = std::min(all.start, span.start_ns);
    all.end = std::max(all.end, span.end_ns);
  }
  return merged({all});
}

// The innermost recorded host span at each time, by thread: no two intervals of a thread overlap.
class InnermostSpans {
 public:
  explicit InnermostSpans(const Timeline& timeline) : timeline_(timeline) {
    std::map<int, std::vector<std::size_t>> by_thread;
    for (std::size_t i = 0; i < timeline.host.size(); ++i) {
      if (timeline.host[i].work != HostWork::step) by_thread[timeline.host[i].thread].push_back(i);
    }
    for (auto& [thread, spans] : by_thread) {
      std::ranges::sort(spans, [&](std::size_t a, std::size_t b) {
        const HostSpan &x = timeline.host[a], &y = timeline.host[b];
        return x.start_ns != y.start_ns ? x.start_ns < y.start_ns : x.end_ns > y.end_ns;
      });
      flatten(spans, pieces_[thread]);
    }
  }

  // Adds the time of each span within `gap` to `sums`; time without a span has no index.
  void add(int thread, const TimeRange& gap,
           std::map<std::optional<std::size_t>, int64_t>& sums) const {
    int64_t left = gap.end - gap.start;
    const auto found = pieces_.find(thread);
    if (found != pieces_.end()) {
      const std::vector<Piece>& pieces = found->second;
      auto piece =
          std::ranges::upper_bound(pieces, gap.start, {}, [](const Piece& p) { return p.at.end; });
      for (; piece != pieces.end() && piece->at.start < gap.end; ++piece) {
        const int64_t ns = overlap(piece->at, gap);
        sums[piece->span] += ns;
        left -= ns;
      }
    }
    if (left > 0) sums[std::nullopt] += left;
  }

 private:
  struct Piece {
    TimeRange at;
    std::size_t span = 0;
  };

  // `spans` in the order of their starts, outer ones first.
  void flatten(std::span<const std::size_t> spans, std::vector<Piece>& pieces) const {
    std::vector<std::size_t> open;
    int64_t at = 0;
    const auto run_until = [&](int64_t time) {
      while (!open.empty() && at < time) {
        const int64_t end = std::min(timeline_.host[open.back()].end_ns, time);
        if (end > at) pieces.push_back({{at, end}, open.back()});
        at = std::max(at, end);
        if (timeline_.host[open.back()].end_ns <= at) open.pop_back();
      }
      at = std::max(at, time);
    };
    for (const std::size_t span : spans) {
      run_until(timeline_.host[span].start_ns);
      open.push_back(span);
    }
    int64_t last = at;
    for (const std::size_t span : open) last = std::max(last, timeline_.host[span].end_ns);
    run_until(last);
  }

  const Timeline& timeline_;
  std::map<int, std::vector<Piece>> pieces_;
};

// Finds the gaps of one step after another.
class Gaps {
 public:
  Gaps(const Timeline& timeline, const IdleOptions& options)
      : timeline_(timeline), options_(options), innermost_(timeline) {}

  // `spans`: indices of those that overlap the step, by rising start.
  void add_step(const TimeRange& step, std::span<const std::size_t> spans, Occupancy& result) {
    int64_t end = step.start;
    std::optional<std::size_t> last;  // the span that ended last
    for (const std::size_t i : spans) {
      const DeviceSpan& span = timeline_.spans[i];
      if (span.start_ns > end) add_gap({end, span.start_ns}, last, i, result);
      if (!last || span.end_ns >= end) last = i;
      end = std::max(end, std::min(span.end_ns, step.end));
    }
    if (step.end > end) add_gap({end, step.end}, last, std::nullopt, result);
  }

  void finish(Occupancy& result) const {
    for (const auto& [key, source] : sources_) result.sources.push_back(source);
    std::ranges::stable_sort(result.sources, std::greater(), &IdleSource::ns);
  }

 private:
  void add_gap(const TimeRange& at, std::optional<std::size_t> last,
               std::optional<std::size_t> next, Occupancy& result) {
    IdleGap gap{.start_ns = at.start, .end_ns = at.end, .next = next};
    gap.cause = cause_of(at, last, next);
    result.idle_ns[static_cast<std::size_t>(gap.cause)] += gap.ns();
    if (gap.cause == IdleCause::host) {
      gap.host = blame(at, next);
    } else {
      add_source(source_of(gap.cause, next), gap.ns());
    }
    result.gaps.push_back(gap);
  }

  IdleCause cause_of(const TimeRange& at, std::optional<std::size_t> last,
                     std::optional<std::size_t> next) const {
    if (!next) return IdleCause::host;  // the host has not yet noticed that the device is done
    const DeviceSpan& span = timeline_.spans[*next];
    if (!span.cause) return IdleCause::other;
    if (timeline_.host[*span.cause].start_ns >= at.start) return IdleCause::host;
    if (!last) return IdleCause::other;
    if (!same_queue(timeline_.spans[*last], span)) return IdleCause::dependence;
    return at.end - at.start <= options_.latency_ns ? IdleCause::latency : IdleCause::other;
  }

  // Whether two spans ran in one queue: overlapping kernels of a lane are on several streams of the
  // timeline, so lanes are compared as well.
  static bool same_queue(const DeviceSpan& a, const DeviceSpan& b) {
    return a.lane && b.lane && a.cause == b.cause ? a.lane == b.lane : a.stream == b.stream;
  }

  // Latency gaps are one source, whatever ran next.
  IdleSource source_of(IdleCause cause, std::optional<std::size_t> next) const {
    const DeviceSpan& span = timeline_.spans[*next];
    IdleSource source{.cause = cause, .replayed = span.replayed};
    if (cause != IdleCause::latency) source.name = span.ops.empty() ? span.name : span.ops;
    return source;
  }

  void add_source(const IdleSource& of, int64_t ns) {
    IdleSource& source =
        sources_.try_emplace({of.cause, of.work, of.name, of.replayed}, of).first->second;
    source.ns += ns;
    ++source.gaps;
  }

  // The host span that fills most of the gap, on the thread of the launch.
  std::optional<std::size_t> blame(const TimeRange& at, std::optional<std::size_t> next) {
    int thread = 0;
    if (next) {
      thread = timeline_.host[*timeline_.spans[*next].cause].thread;
    } else if (!timeline_.steps.empty()) {
      thread = timeline_.steps.front().thread;
    }
    std::map<std::optional<std::size_t>, int64_t> sums;
    innermost_.add(thread, at, sums);
    for (const auto& [index, ns] : sums) {
      IdleSource source{.cause = IdleCause::host};
      if (index) {
        source.work = timeline_.host[*index].work;
        source.name = timeline_.host[*index].name;
      }
      add_source(source, ns);
    }
    const auto longest = std::ranges::max_element(sums, {}, [](const auto& s) { return s.second; });
    return longest == sums.end() ? std::nullopt : longest->first;
  }

  const Timeline& timeline_;
  const IdleOptions options_;
  const InnermostSpans innermost_;
  using SourceKey = std::tuple<IdleCause, std::optional<HostWork>, std::string, bool>;
  std::map<SourceKey, IdleSource> sources_;
};

}  // namespace

std::string to_string(const IdleSource& source) {
  switch (source.cause) {
    case IdleCause::host:
      return source.work ? fmt::format("{} ({})", source.name, name_of(*source.work))
                         : "outside of recorded calls";
    case IdleCause::dependence: return fmt::format("another stream, before {}", source.name);
    case IdleCause::latency: return source.replayed ? "launches inside a graph" : "queued launches";
    case IdleCause::other: break;
  }
  return fmt::format("unknown, before {}", source.name);
}

Occupancy occupancy_of(const Timeline& timeline, const IdleOptions& options) {
  for (const DeviceSpan& span : timeline.spans) {
    if (span.cause && *span.cause >= timeline.host.size()) {
      fail("[occupancy_of] expected causes among {} host spans, got {} of {}", timeline.host.size(),
           *span.cause, span.name);
    }
  }
  Occupancy result;
  result.steps = timeline.steps.size();
  std::vector<std::size_t> order(timeline.spans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return timeline.spans[i].start_ns; });
  Gaps gaps(timeline, options);
  for (const TimeRange& step : steps_of(timeline)) {
    std::vector<std::size_t> inside;
    std::vector<TimeRange> all, kernels;
    for (const std::size_t i : order) {
      const DeviceSpan& span = timeline.spans[i];
      const TimeRange at{std::max(span.start_ns, step.start), std::min(span.end_ns, step.end)};
      if (at.end <= at.start) continue;
      inside.push_back(i);
      all.push_back(at);
      if (span.work == DeviceWork::kernel) kernels.push_back(at);
    }
    const int64_t busy = length(merged(std::move(all)));
    result.wall_ns += step.end - step.start;
    result.busy_ns += busy;
    result.transfer_ns += busy - length(merged(std::move(kernels)));
    gaps.add_step(step, inside, result);
  }
  gaps.finish(result);
  return result;
}

}  // namespace brrr::measure
