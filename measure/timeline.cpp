// Records a timeline: times the step untraced, records it on the host and on the device, and joins
// the two records.
#include "brrr/measure/timeline.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "brrr/graph/ceilings.h"
#include "brrr/measure/host_recorder.h"
#include "brrr/measure/machine.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/runtime.h"
#include "brrr/tensor/stream.h"

namespace brrr::measure {
namespace {

struct Part {
  std::int64_t start, end;
};

// The length of the union of intervals.
std::int64_t covered(std::vector<Part> all) {
  std::ranges::sort(all, {}, &Part::start);
  std::int64_t sum = 0, end = std::numeric_limits<std::int64_t>::min();
  for (const Part& each : all) {
    if (each.end <= end) continue;
    sum += each.end - std::max(each.start, end);
    end = each.end;
  }
  return sum;
}

// The parts of a span that lie within steps.
template <class Span>
void add_parts(std::vector<Part>& parts, const Span& span, const Timeline& timeline) {
  const std::vector<HostSpan>& steps = timeline.steps;  // one after another
  auto step = std::ranges::upper_bound(steps, span.start_ns, {}, &HostSpan::end_ns);
  for (; step != steps.end() && step->start_ns < span.end_ns; ++step)
    parts.push_back({std::max(span.start_ns, step->start_ns), std::min(span.end_ns, step->end_ns)});
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text ? text.get() : symbol;
}

// --- Joining the host's record and the device's ---

// Distributes overlapping spans of a stream (nodes of a graph, kernels that start while the
// previous one ends) among several streams, so that no two spans of a stream overlap.
class StreamSplitter {
 public:
  int place(std::uint64_t stream, std::int64_t start_ns, std::int64_t end_ns) {
    std::vector<Lane>& lanes = of_stream_[stream];
    for (Lane& lane : lanes) {
      if (lane.end_ns > start_ns) continue;
      lane.end_ns = end_ns;
      return lane.index;
    }
    lanes.push_back({count_, end_ns});
    return count_++;
  }

 private:
  struct Lane {
    int index;
    std::int64_t end_ns;
  };
  std::map<std::uint64_t, std::vector<Lane>> of_stream_;
  int count_ = 0;
};

HostWork work_of(const DriverCall& call) {
  if (call.waits) return HostWork::wait;
  const bool memory =
      call.name.find("Alloc") != std::string::npos || call.name.find("Free") != std::string::npos;
  return memory ? HostWork::allocation : HostWork::launch;
}

class RecordJoin {
 public:
  RecordJoin(HostRecord host, DeviceRecords device, Timeline& into)
      : host_(std::move(host)), device_(std::move(device)), into_(into) {}

  // `kept`: the last steps, whose spans the timeline gets.
  void join(std::size_t kept) {
    for (const HostSpan& span : host_.spans) {
      if (span.work == HostWork::step) into_.steps.push_back(span);
    }
    kept = std::min(kept, into_.steps.size());
    into_.steps.erase(into_.steps.begin(), into_.steps.end() - static_cast<std::ptrdiff_t>(kept));
    if (!into_.steps.empty()) window_ = {into_.steps.front().start_ns, into_.steps.back().end_ns};
    add_host_spans();
    std::ranges::stable_sort(device_.device, {}, &DeviceRecord::start_ns);
    name_replays();
    add_device_spans();
    find_missing();
    for (const MemorySample& each : host_.memory) {
      if (inside(each.at_ns)) into_.memory.push_back(each);
    }
  }

 private:
  struct Ordered {
    HostSpan span;
    std::optional<std::size_t> recorded;  // its index in the host's record
    std::uint32_t call = 0;               // or its correlation
  };

  bool inside(std::int64_t at) const { return at >= window_.start && at <= window_.end; }

  int thread_of(std::uint32_t native) {
    const auto found = std::ranges::find(host_.native_threads, native);
    const auto index = found - host_.native_threads.begin();
    if (found == host_.native_threads.end()) host_.native_threads.push_back(native);
    return static_cast<int>(index);
  }

  void add_host_spans() {
    std::vector<Ordered> all;
    for (std::size_t i = 0; i < host_.spans.size(); ++i) {
      const HostSpan& span = host_.spans[i];
      if (span.work != HostWork::step && inside(span.start_ns)) all.push_back({span, i});
    }
    for (const DriverCall& call : device_.calls) {
      if (!inside(call.start_ns)) continue;
      all.push_back({{.name = call.name,
                      .work = work_of(call),
                      .thread = thread_of(call.thread),
                      .start_ns = call.start_ns,
                      .end_ns = call.end_ns},
                     std::nullopt,
                     call.correlation});
    }
    std::ranges::stable_sort(all, [](const Ordered& a, const Ordered& b) {
      return std::pair(a.span.start_ns, -a.span.end_ns) <
             std::pair(b.span.start_ns, -b.span.end_ns);
    });
    for (Ordered& each : all) {
      if (each.recorded) of_recorded_[*each.recorded] = into_.host.size();
      if (each.call) of_call_[each.call] = into_.host.size();  // the innermost one of a call
      into_.host.push_back(std::move(each.span));
    }
  }

  // Finds the launches of the kernels of each replay.
  void name_replays() {
    std::map<std::size_t, std::vector<std::size_t>> of_span;
    for (std::size_t i = 0; i < device_.device.size(); ++i) {
      const DeviceRecord& record = device_.device[i];
      if (record.cause && record.node && record.work == DeviceWork::kernel)
        of_span[*record.cause].push_back(i);
    }
    for (const Replay& replay : host_.replays) {
      const auto found = of_span.find(replay.span);
      if (found == of_span.end() || found->second.size() != replay.kernels->size()) continue;
      std::vector<std::size_t>& kernels = found->second;
      std::ranges::sort(kernels, {}, [&](std::size_t i) { return *device_.device[i].node; });
      if (!name_in_order(*replay.kernels, kernels)) name_by_symbol(*replay.kernels, kernels);
    }
  }

  // Matches kernels to launches by their order, the order of capture. Returns false if symbols
  // contradict it.
  bool name_in_order(const ReplayedKernels& captured, const std::vector<std::size_t>& records) {
    for (std::size_t i = 0; i < records.size(); ++i) {
      const std::string& symbol = captured[i].symbol;
      if (!symbol.empty() && symbol != device_.device[records[i]].name) return false;
    }
    for (std::size_t i = 0; i < records.size(); ++i) replayed_[records[i]] = captured[i];
    return true;
  }

  // Matches kernels by symbol: a unique symbol identifies the launch; a symbol of several kernels
  // with the same ops identifies the ops.
  void name_by_symbol(const ReplayedKernels& captured, const std::vector<std::size_t>& records) {
    std::map<std::string, std::vector<const ReplayedKernel*>> of_symbol;
    for (const ReplayedKernel& kernel : captured) of_symbol[kernel.symbol].push_back(&kernel);
    for (const std::size_t record : records) {
      const auto found = of_symbol.find(device_.device[record].name);
      if (found == of_symbol.end() || found->first.empty()) continue;
      ReplayedKernel known = *found->second.front();
      if (found->second.size() > 1) known.launch = -1;
      const bool same_ops = std::ranges::all_of(
          found->second, [&](const ReplayedKernel* each) { return each->ops == known.ops; });
      if (same_ops) replayed_[record] = std::move(known);
    }
  }

  void add_device_spans() {
    StreamSplitter lanes;
    for (std::size_t i = 0; i < device_.device.size(); ++i) {
      const DeviceRecord& record = device_.device[i];
      // The host span determines the step, since the clocks of events and host differ by
      // microseconds.
      const bool kept =
          record.cause ? of_recorded_.contains(*record.cause) : inside(record.start_ns);
      if (!kept) continue;
      DeviceSpan span{.name = demangled(record.name),
                      .work = record.work,
                      .stream = lanes.place(record.stream, record.start_ns, record.end_ns),
                      .start_ns = record.start_ns,
                      .end_ns = record.end_ns};
      if (record.cause) span.cause = index_of(of_recorded_, *record.cause);
      if (!span.cause && record.call) span.cause = index_of(of_call_, record.call);
      const HostSpan* const cause = span.cause ? &into_.host[*span.cause] : nullptr;
      span.replayed = record.node || (cause && cause->work == HostWork::replay);
      if (const auto known = replayed_.find(i); known != replayed_.end()) {
        if (known->second.launch >= 0) {
          span.launch = static_cast<std::size_t>(known->second.launch);
          span.lane = known->second.lane;
        }
        span.ops = known->second.ops;
      } else if (cause && cause->work == HostWork::op) {
        span.ops = cause->name;
      }
      if (span.name.empty()) span.name = cause ? cause->name : name_of(span.work);
      into_.spans.push_back(std::move(span));
    }
  }

  // Lists gaps in the records. CUPTI may silently record the host's calls only.
  void find_missing() {
    into_.missing = std::move(device_.missing);
    if (!into_.device.is_cuda()) return;
    const bool issued = std::ranges::any_of(device_.calls, [this](const DriverCall& call) {
      return inside(call.start_ns) && call.name.find("Launch") != std::string::npos;
    });
    if (issued && into_.spans.empty())
      into_.missing.push_back("the driver launched kernels, of which none is recorded");
    for (const Replay& replay : host_.replays) {
      const auto span = of_recorded_.find(replay.span);
      if (span == of_recorded_.end() || device_.calls.empty()) continue;
      const auto recorded = std::ranges::count_if(into_.spans, [&](const DeviceSpan& each) {
        return each.work == DeviceWork::kernel && each.cause == span->second;
      });
      if (recorded == std::ssize(*replay.kernels)) continue;
      into_.missing.push_back(fmt::format("a replay launched {} kernels, of which {} are recorded",
                                          replay.kernels->size(), recorded));
      return;
    }
  }

  template <class Key>
  static std::optional<std::size_t> index_of(const std::map<Key, std::size_t>& map, Key key) {
    const auto found = map.find(key);
    return found == map.end() ? std::nullopt : std::optional(found->second);
  }

  HostRecord host_;
  DeviceRecords device_;
  Timeline& into_;
  Part window_{0, 0};
  std::map<std::size_t, std::size_t> of_recorded_;
  std::map<std::uint32_t, std::size_t> of_call_;
  std::map<std::size_t, ReplayedKernel> replayed_;  // by device record
};

// --- Running steps ---

double run_step(Device device, const std::function<void()>& step) {
  const double start = host_seconds();
  step();
  synchronize(device);
  return host_seconds() - start;
}

void run_steps(Device device, const std::function<void()>& step, int count,
               std::vector<double>& seconds) {
  for (int i = 0; i < count; ++i) seconds.push_back(run_step(device, step));
}

// Ends the recording, also if a step throws.
class Recording {
 public:
  explicit Recording(Device device) : recorder_(device.is_cuda() ? record_cuda(device) : nullptr) {
    HostRecorder::instance().start(device, recorder_.get());
  }
  ~Recording() {
    if (running_) HostRecorder::instance().stop();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  double run(Device device, const std::function<void()>& step) {
    HostRecorder& host = HostRecorder::instance();
    const std::uint64_t ticket = host.begin_step();
    const double seconds = run_step(device, step);
    host.end_step(ticket);
    return seconds;
  }
  std::string source() const { return recorder_ ? recorder_->source() : "the host's clock"; }
  HostRecord stop_host() {
    running_ = false;
    return HostRecorder::instance().stop();
  }
  DeviceRecords stop_device() { return recorder_ ? recorder_->stop() : DeviceRecords(); }

 private:
  std::unique_ptr<DeviceRecorder> recorder_;
  bool running_ = true;
};

}  // namespace

std::int64_t Timeline::step_ns() const {
  std::int64_t sum = 0;
  for (const HostSpan& step : steps) sum += step.end_ns - step.start_ns;
  return sum;
}

std::int64_t Timeline::busy_ns() const {
  std::vector<Part> parts;
  for (const DeviceSpan& span : spans) add_parts(parts, span, *this);
  return covered(std::move(parts));
}

double Timeline::busy_share() const {
  const auto busy = static_cast<double>(busy_ns()) * 1e-9 / static_cast<double>(steps.size());
  return steps.empty() || untraced.median <= 0 ? 0 : std::min(1.0, busy / untraced.median);
}

std::int64_t Timeline::host_ns(HostWork work) const {
  std::map<int, std::vector<Part>> of_thread;
  for (const HostSpan& span : host) {
    if (span.work == work) add_parts(of_thread[span.thread], span, *this);
  }
  std::int64_t sum = 0;
  for (auto& [thread, parts] : of_thread) sum += covered(std::move(parts));
  return sum;
}

Timeline record_timeline(Device device, const std::function<void()>& step,
                         const TimelineOptions& options) {
  constexpr int kWarm = 3, kWarmTraced = 2, kLeastTraced = 10, kLeastUntraced = 6;
  if (options.steps < 1)
    fail("[record_timeline] expected at least one step, got {}", options.steps);
  require_device(device, "record_timeline");
  std::optional<GpuState> gpu;
  if (device.is_cuda()) gpu = gpu_state(device);
  std::vector<double> warm, before, traced, after;
  run_steps(device, step, kWarm, warm);
  const double fit = options.budget_seconds / std::max(warm.back(), 1e-9);
  const int half = static_cast<int>(std::clamp<double>(
                       fit, kLeastUntraced, std::max(kLeastUntraced, options.untraced_steps))) /
                   2;
  run_steps(device, step, half, before);

  Timeline timeline;
  timeline.device = device;
  Recording recording(device);
  for (int i = 0; i < kWarmTraced; ++i) recording.run(device, step);
  // Traces more short steps than it keeps, so that the cost of tracing is a median.
  const int traced_steps = std::max(options.steps, std::min(half, kLeastTraced));
  for (int i = 0; i < traced_steps; ++i) traced.push_back(recording.run(device, step));
  timeline.source = recording.source();
  HostRecord host = recording.stop_host();
  DeviceRecords on_device = recording.stop_device();
  run_steps(device, step, half, after);
  if (gpu) timeline.gpu = worse_of(*gpu, gpu_state(device));
  timeline.machine = graph::machine_of(device);
  timeline.date = utc_now();

  std::vector<double> untraced = before;
  untraced.insert(untraced.end(), after.begin(), after.end());
  timeline.untraced = summarize(std::move(untraced));
  timeline.before = summarize(std::move(before));
  timeline.after = summarize(std::move(after));
  timeline.traced = summarize(std::move(traced));
  RecordJoin(std::move(host), std::move(on_device), timeline)
      .join(static_cast<std::size_t>(options.steps));
  return timeline;
}

const char* name_of(HostWork work) {
  switch (work) {
    case HostWork::step: return "step";
    case HostWork::op: return "op";
    case HostWork::backward: return "backward";
    case HostWork::allocation: return "allocation";
    case HostWork::launch: return "launch";
    case HostWork::replay: return "replay";
    case HostWork::wait: return "wait";
    case HostWork::trace: return "trace";
  }
  return "unknown";
}

const char* name_of(DeviceWork work) {
  switch (work) {
    case DeviceWork::kernel: return "kernel";
    case DeviceWork::copy: return "copy";
    case DeviceWork::fill: return "fill";
  }
  return "unknown";
}

}  // namespace brrr::measure
