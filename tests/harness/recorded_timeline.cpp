#include "tests/harness/recorded_timeline.h"

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/harness/source_tree.h"

namespace brrr::testing {
namespace {

using Json = nlohmann::json;
using measure::DeviceSpan;
using measure::DeviceWork;
using measure::HostSpan;
using measure::HostWork;

std::int64_t nanoseconds(const Json& us) { return std::llround(us.get<double>() * 1e3); }

template <class Work>
Work work_of(const std::string& category, int count) {
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<Work>(i)) == category) return static_cast<Work>(i);
  }
  throw std::invalid_argument("a slice of unknown category " + category);
}

HostSpan host_span(const Json& slice) {
  const std::int64_t start = nanoseconds(slice.at("ts"));
  return {.name = slice.at("name"),
          .work = work_of<HostWork>(slice.at("cat"), static_cast<int>(HostWork::trace) + 1),
          .thread = slice.at("tid").get<int>() - 1,  // track 0 has the steps
          .start_ns = start,
          .end_ns = start + nanoseconds(slice.at("dur")),
          .where = slice.at("args").value("module", "")};
}

DeviceSpan device_span(const Json& slice) {
  const std::int64_t start = nanoseconds(slice.at("ts"));
  const Json& arguments = slice.at("args");
  DeviceSpan span{
      .name = arguments.at("symbol"),
      .work = work_of<DeviceWork>(slice.at("cat"), static_cast<int>(DeviceWork::fill) + 1),
      .stream = slice.at("tid"),
      .start_ns = start,
      .end_ns = start + nanoseconds(slice.at("dur")),
      .replayed = arguments.value("replayed", false)};
  if (arguments.contains("launch")) span.launch = arguments.at("launch").get<std::size_t>();
  if (slice.at("name") != span.name) span.ops = slice.at("name");
  return span;
}

// An arrow starts where its host span does; the innermost of those is the one that launched.
std::size_t cause_at(const measure::Timeline& timeline, std::int64_t start, int thread) {
  for (std::size_t i = timeline.host.size(); i-- > 0;) {
    if (timeline.host[i].start_ns == start && timeline.host[i].thread == thread) return i;
  }
  throw std::invalid_argument("an arrow starts at no host span");
}

}  // namespace

measure::Timeline recorded_timeline(const std::string& name) {
  std::ifstream file(source_path("tests/measure/data/" + name + ".json"));
  const Json trace = Json::parse(file);
  const Json& about = trace.at("otherData");
  measure::Timeline timeline;
  timeline.device = Device::parse(about.at("device").get<std::string>());
  timeline.source = about.at("source");
  timeline.missing = about.at("missing").get<std::vector<std::string>>();
  timeline.untraced.median = about.at("untraced_us").get<double>() * 1e-6;
  timeline.traced.median = about.at("traced_us").get<double>() * 1e-6;
  std::map<std::int64_t, Json> starts, ends;  // of arrows
  for (const Json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "s") starts[event.at("id")] = event;
    if (phase == "f") ends[event.at("id")] = event;
    if (phase != "X") continue;
    if (event.at("pid") == 2) {
      timeline.spans.push_back(device_span(event));
    } else {
      (event.at("tid") == 0 ? timeline.steps : timeline.host).push_back(host_span(event));
    }
  }
  for (const auto& [id, start] : starts) {
    const std::int64_t at = nanoseconds(ends.at(id).at("ts"));
    for (DeviceSpan& span : timeline.spans) {
      if (span.start_ns != at || span.stream != ends.at(id).at("tid").get<int>()) continue;
      span.cause = cause_at(timeline, nanoseconds(start.at("ts")), start.at("tid").get<int>() - 1);
    }
  }
  return timeline;
}

}  // namespace brrr::testing
