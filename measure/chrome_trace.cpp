#include "brrr/measure/chrome_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <vector>

#include "brrr/measure/idle.h"
#include "brrr/measure/program_code.h"

namespace brrr::measure {
namespace {

constexpr int kHost = 1, kDevice = 2;  // processes of the trace
constexpr int kSteps = 0;              // a track of the host; thread i has track i + 1

// The length of the UTF-8 sequence at the start of the text; 0: it is invalid.
std::size_t json_sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) < 0x80            ? 1
                             : byte(0) >> 5 == 0b110   ? 2
                             : byte(0) >> 4 == 0b1110  ? 3
                             : byte(0) >> 3 == 0b11110 ? 4
                                                       : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 0b10) return 0;
  }
  const unsigned second = length > 1 ? byte(1) : 0;
  const bool overlong = (length == 2 && byte(0) < 0xC2) ||
                        (length == 3 && byte(0) == 0xE0 && second < 0xA0) ||
                        (length == 4 && byte(0) == 0xF0 && second < 0x90);
  const bool no_character =
      (length == 3 && byte(0) == 0xED && second >= 0xA0) ||
      (length == 4 && (byte(0) > 0xF4 || (byte(0) == 0xF4 && second >= 0x90)));
  return overlong || no_character ? 0 : length;
}

// A JSON string. Names may be any bytes; invalid UTF-8 is replaced.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = json_sequence_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      out += "\\ufffd";
    } else if (first < 0x20) {
      out += fmt::format("\\u{:04x}", first);
    } else {
      if (first == '"' || first == '\\') out += '\\';
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  out += '"';
  return out;
}

class Writer {
 public:
  explicit Writer(const Timeline& timeline)
      : timeline_(timeline), origin_ns_(timeline.steps.empty() ? 0 : timeline.steps[0].start_ns) {}

  std::string write(const std::string& what) {
    name_tracks();
    for (const HostSpan& step : timeline_.steps)
      slice(step.name, "step", step.start_ns, step.end_ns, kHost, kSteps, "");
    add_host();
    add_device();
    add_gaps();
    for (const MemorySample& each : timeline_.memory) {
      event("\"name\":\"live bytes\",\"ph\":\"C\",\"ts\":{},\"pid\":{},\"args\":{{\"bytes\":{}}}",
            at(each.at_ns), kHost, each.bytes);
    }
    return fmt::format(
        "{{\"displayTimeUnit\":\"ns\",\n\"otherData\":{},\n\"traceEvents\":[\n{}\n]}}\n",
        other_data(what), events_);
  }

 private:
  std::string at(std::int64_t ns) const { return length(ns - origin_ns_); }
  static std::string length(std::int64_t ns) {
    return fmt::format("{:.3f}", static_cast<double>(ns) * 1e-3);
  }

  template <class... A>
  void event(fmt::format_string<A...> format, A&&... arguments) {
    events_ += events_.empty() ? "{" : ",\n{";
    fmt::format_to(std::back_inserter(events_), format, std::forward<A>(arguments)...);
    events_ += '}';
  }

  void slice(const std::string& name, const char* category, std::int64_t start_ns,
             std::int64_t end_ns, int process, int track, const std::string& arguments) {
    event(
        "\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":{},\"tid\":{},"
        "\"args\":{{{}}}",
        quoted(name), category, at(start_ns), length(std::max<std::int64_t>(end_ns - start_ns, 0)),
        process, track, arguments);
  }

  void name_track(const char* what, int process, int track, const std::string& name) {
    event("\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}", what,
          process, track, quoted(name));
  }

  void name_tracks() {
    int threads = 0, streams = 0;
    for (const HostSpan& span : timeline_.host) threads = std::max(threads, span.thread + 1);
    for (const DeviceSpan& span : timeline_.spans) streams = std::max(streams, span.stream + 1);
    name_track("process_name", kHost, 0, "host");
    name_track("thread_name", kHost, kSteps, "steps");
    for (int i = 0; i < threads; ++i)
      name_track("thread_name", kHost, i + 1, fmt::format("thread {}", i));
    if (timeline_.spans.empty()) return;
    name_track("process_name", kDevice, 0, to_string(timeline_.device));
    for (int i = 0; i < streams; ++i)
      name_track("thread_name", kDevice, i, fmt::format("stream {}", i));
    gaps_ = streams;
    if (has_gaps()) name_track("thread_name", kDevice, gaps_, "gaps");
  }

  // Records with holes would show gaps where the device worked.
  bool has_gaps() const { return timeline_.has_kernels() && timeline_.is_complete(); }

  // The idle time between the spans of all streams, by cause.
  void add_gaps() {
    if (!has_gaps()) return;
    for (const IdleGap& gap : occupancy_of(timeline_).gaps) {
      const char* const cause = kIdleCauses[static_cast<std::size_t>(gap.cause)];
      std::string arguments = fmt::format("\"cause\":\"{}\"", cause);
      if (gap.host) {
        const HostSpan& host = timeline_.host[*gap.host];
        arguments += fmt::format(",\"host\":{}",
                                 quoted(fmt::format("{} ({})", host.name, name_of(host.work))));
      }
      if (gap.next) {
        const DeviceSpan& next = timeline_.spans[*gap.next];
        arguments += fmt::format(",\"before\":{}", quoted(next.ops.empty() ? next.name : next.ops));
      }
      slice(fmt::format("idle: {}", cause), "gap", gap.start_ns, gap.end_ns, kDevice, gaps_,
            arguments);
    }
  }

  // Adds host spans in the order of their starts, outer spans first. A span is cut where its
  // enclosing span ends, since slices of a track must nest.
  void add_host() {
    std::map<int, std::vector<std::int64_t>> ends;  // of enclosing spans, by thread
    for (const HostSpan& span : timeline_.host) {
      std::vector<std::int64_t>& around = ends[span.thread];
      while (!around.empty() && around.back() <= span.start_ns) around.pop_back();
      const std::int64_t end = around.empty() ? span.end_ns : std::min(span.end_ns, around.back());
      around.push_back(end);
      slice(span.name, name_of(span.work), span.start_ns, end, kHost, span.thread + 1,
            host_arguments(span));
    }
  }

  static std::string cost_text(const std::string& result, std::int64_t flops, std::int64_t bytes) {
    return fmt::format("\"result\":{},\"flops\":{},\"bytes\":{}", quoted(result), flops, bytes);
  }

  static std::string place_text(const std::string& phase, const std::string& line) {
    return (phase.empty() ? "" : fmt::format(",\"phase\":{}", quoted(phase))) +
           (line.empty() ? "" : fmt::format(",\"line\":{}", quoted(line)));
  }

  std::string host_arguments(const HostSpan& span) const {
    std::string arguments =
        span.where.empty() ? "" : fmt::format("\"module\":{}", quoted(span.where));
    if (!span.call) return arguments;
    const CallDetails& call = timeline_.calls.at(*span.call);
    return arguments + (arguments.empty() ? "" : ",") +
           cost_text(call.result, call.flops, call.bytes) + place_text(call.phase, call.line);
  }

  // What a kernel computes: a launch of a compiled step, or the call that launched it.
  std::string kernel_arguments(const DeviceSpan& span) const {
    if (span.launch && *span.launch < timeline_.launches.size()) {
      const core::LaunchCost& launch = timeline_.launches[*span.launch];
      return fmt::format(",{},\"module\":{}{}",
                         cost_text(launch.result, launch.flops, launch.bytes),
                         quoted(launch.module), place_text(launch.phase, lines_[*span.launch]));
    }
    if (!span.cause) return "";
    const HostSpan& cause = timeline_.host[*span.cause];
    return cause.call ? "," + host_arguments(cause) : "";
  }

  void add_device() {
    for (std::size_t i = 0; i < timeline_.spans.size(); ++i) {
      const DeviceSpan& span = timeline_.spans[i];
      std::string arguments = fmt::format("\"symbol\":{}", quoted(span.name));
      if (span.launch) arguments += fmt::format(",\"launch\":{}", *span.launch);
      if (span.replayed) arguments += ",\"replayed\":true";
      arguments += kernel_arguments(span);
      slice(span.ops.empty() ? span.name : span.ops, name_of(span.work), span.start_ns, span.end_ns,
            kDevice, span.stream, arguments);
      if (!span.cause) continue;
      const HostSpan& cause = timeline_.host[*span.cause];
      event(
          "\"name\":\"launch\",\"cat\":\"launch\",\"ph\":\"s\",\"id\":{},\"ts\":{},\"pid\":{},"
          "\"tid\":{}",
          i, at(cause.start_ns), kHost, cause.thread + 1);
      event(
          "\"name\":\"launch\",\"cat\":\"launch\",\"ph\":\"f\",\"bp\":\"e\",\"id\":{},\"ts\":{},"
          "\"pid\":{},"
          "\"tid\":{}",
          i, at(span.start_ns), kDevice, span.stream);
    }
  }

  std::string other_data(const std::string& what) const {
    std::vector<std::string> missing;
    for (const std::string& each : timeline_.missing) missing.push_back(quoted(each));
    return fmt::format(
        "{{\"what\":{},\"machine\":{},\"date\":{},\"device\":{},\"source\":{},\"complete\":{},"
        "\"missing\":[{}],"
        "\"untraced_us\":{:.3f},\"traced_us\":{:.3f},\"perturbation\":{:.4f}}}",
        quoted(what), quoted(timeline_.machine), quoted(timeline_.date),
        quoted(to_string(timeline_.device)), quoted(timeline_.source), timeline_.is_complete(),
        fmt::join(missing, ","), timeline_.untraced.median * 1e6, timeline_.traced.median * 1e6,
        timeline_.perturbation());
  }

  const Timeline& timeline_;
  std::vector<std::string> lines_ = lines_of(timeline_.launches);
  std::int64_t origin_ns_;
  int gaps_ = 0;  // the track of gaps, after those of the streams
  std::string events_;
};

}  // namespace

std::string chrome_trace(const Timeline& timeline, const std::string& what) {
  return Writer(timeline).write(what);
}

}  // namespace brrr::measure
