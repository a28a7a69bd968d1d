// Timelines on the CPU, what is computed from them, and their traces.
#include "brrr/measure/timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/measure/chrome_trace.h"
#include "brrr/measure/host_recorder.h"
#include "brrr/measure/idle.h"
#include "brrr/nn/mlp.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"
#include "tests/harness/catch.h"

using namespace brrr;
using namespace brrr::measure;
using Json = nlohmann::json;

namespace {

Timeline record(const std::function<void()>& step, int steps = 2) {
  return record_timeline(cpu, step, {.steps = steps, .untraced_steps = 6});
}

std::vector<HostSpan> spans_of(const Timeline& timeline, HostWork work) {
  std::vector<HostSpan> spans;
  for (const HostSpan& span : timeline.host) {
    if (span.work == work) spans.push_back(span);
  }
  return spans;
}

bool is_inside(const HostSpan& inner, const HostSpan& outer) {
  return inner.thread == outer.thread && inner.start_ns >= outer.start_ns &&
         inner.end_ns <= outer.end_ns;
}

// A timeline as it might be recorded, on a clock that starts at 0.
Timeline recorded() {
  Timeline t;
  t.device = cuda(0);
  t.steps = {{.name = "step", .work = HostWork::step, .start_ns = 1000, .end_ns = 2000},
             {.name = "step", .work = HostWork::step, .start_ns = 3000, .end_ns = 4000}};
  t.host = {{.name = "add", .work = HostWork::op, .start_ns = 1000, .end_ns = 1300},
            {.name = "allocate", .work = HostWork::allocation, .start_ns = 1100, .end_ns = 1150},
            {.name = "cuLaunchKernel", .work = HostWork::launch, .start_ns = 1200, .end_ns = 1290},
            {.name = "mul", .work = HostWork::op, .start_ns = 3000, .end_ns = 3200}};
  t.spans = {
      {.name = "k", .stream = 0, .start_ns = 1250, .end_ns = 1450, .cause = 0, .ops = "add"},
      {.name = "k", .stream = 1, .start_ns = 1400, .end_ns = 1500, .cause = 0, .ops = "add"},
      {.name = "k", .stream = 0, .start_ns = 3900, .end_ns = 4100, .cause = 3, .ops = "mul"}};
  t.source = "CUPTI 13.0";
  t.untraced = {.median = 1e-6};
  t.traced = {.median = 1.05e-6};
  return t;
}

// Slices of a track nest or follow each other.
void check_slices(const Json& document) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  for (const Json& event : document["traceEvents"]) {
    if (event["ph"] == "X")
      tracks[{event["pid"], event["tid"]}].emplace_back(
          event["ts"].get<double>(), event["ts"].get<double>() + event["dur"].get<double>());
  }
  CHECK_FALSE(tracks.empty());
  for (const auto& [track, slices] : tracks) {
    std::vector<double> around;
    for (const auto& [start, end] : slices) {
      while (!around.empty() && around.back() <= start + 1e-4) around.pop_back();
      if (!around.empty()) CHECK(end <= around.back() + 1e-4);
      around.push_back(end);
    }
  }
}

}  // namespace

TEST_CASE("a step on the CPU is recorded with ops, allocations and waits", "[timeline]") {
  const Tensor a = ones({64}), b = ones({64});
  const Timeline timeline = record([&] { relu(a + b); }, 3);
  CHECK(timeline.device == cpu);
  CHECK(timeline.is_complete());
  CHECK(timeline.spans.empty());
  REQUIRE(timeline.steps.size() == 3);
  const std::vector<HostSpan> ops = spans_of(timeline, HostWork::op);
  REQUIRE(ops.size() == 6);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    CHECK(ops[i].name == (i % 2 ? "relu" : "add"));
    CHECK(is_inside(ops[i], timeline.steps[i / 2]));
    CHECK(ops[i].start_ns < ops[i].end_ns);
  }
  const std::vector<HostSpan> allocations = spans_of(timeline, HostWork::allocation);
  REQUIRE(allocations.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) CHECK(is_inside(allocations[i], ops[i]));
  CHECK(spans_of(timeline, HostWork::wait).size() == 3);  // each step is waited for
  CHECK(timeline.untraced.samples == 6);
  CHECK(timeline.before.samples == 3);
  CHECK(timeline.after.samples == 3);
  CHECK(timeline.traced.samples >= 3);
  CHECK(timeline.untraced.median > 0);
  CHECK(timeline.traced.median > 0);
  REQUIRE(timeline.memory.size() == 6);
  CHECK(timeline.memory[1].bytes - timeline.memory[0].bytes >= 0);
  // Nobody listens any more.
  CHECK(host_listener.load() == nullptr);
}

TEST_CASE("backward spans are named by the forward ops, spans by their modules", "[timeline]") {
  nn::MLP model({4, 8, 2});
  const Tensor x = ones({3, 4});
  const Timeline timeline = record([&] { backward(sum(model(x))); }, 1);
  std::set<std::string> nodes, modules;
  for (const HostSpan& span : spans_of(timeline, HostWork::backward)) nodes.insert(span.name);
  CHECK(nodes.contains("backward"));
  CHECK(nodes.contains("sum"));
  CHECK(nodes.size() >= 4);
  const std::vector<HostSpan> outer = spans_of(timeline, HostWork::backward);
  for (const HostSpan& span : outer) CHECK(is_inside(span, outer[0]));
  for (const HostSpan& span : spans_of(timeline, HostWork::op)) modules.insert(span.where);
  CHECK(modules.contains("mlp.layers.0"));
  CHECK(modules.contains("mlp.layers.1"));
  CHECK(modules.contains("mlp"));
  CHECK(modules.contains(""));  // of the backward pass
}

TEST_CASE("a replay on the CPU shows its kernels, fused ones by their ops", "[timeline]") {
  const Tensor a = ones({64});
  Tensor x = zeros({64});
  const auto ops_in = [&](Mode mode) {
    auto step = compile([&] { relu_(add_(mul_(x, a), a)); }, {.mode = mode});
    const Timeline timeline = record([&] { step(); }, 1);
    const std::vector<HostSpan> replays = spans_of(timeline, HostWork::replay);
    REQUIRE(replays.size() == 1);
    std::vector<std::string> names;
    for (const HostSpan& span : spans_of(timeline, HostWork::op)) {
      CHECK(is_inside(span, replays[0]));
      names.push_back(span.name);
    }
    return names;
  };
  CHECK(ops_in(Mode::graph) == std::vector<std::string>{"mul", "add", "relu"});
  CHECK(ops_in(Mode::fused) == std::vector<std::string>{"mul + add + relu"});
}

TEST_CASE("a trace of a step is a span", "[timeline]") {
  Tensor x = zeros({4});
  const Timeline timeline = record(
      [&] {
        auto step = compile([&] { add_(x, 1.0); }, {.name = "mine"});
        step();
      },
      1);
  const std::vector<HostSpan> traces = spans_of(timeline, HostWork::trace);
  REQUIRE(traces.size() == 1);
  CHECK(traces[0].name == "mine");
}

TEST_CASE("an op that throws leaves a span that ends", "[timeline]") {
  const Tensor a = ones({4}), b = ones({5});
  const Timeline timeline = record(
      [&] {
        CHECK_THROWS_AS(a + b, Error);
        relu(a);
      },
      1);
  const std::vector<HostSpan> ops = spans_of(timeline, HostWork::op);
  REQUIRE(ops.size() == 2);
  CHECK(ops[0].name == "add");
  CHECK(ops[0].end_ns <= ops[1].start_ns);
  CHECK(ops[1].name == "relu");
}

TEST_CASE("a step that throws ends the recording, and another can follow", "[timeline]") {
  const Tensor a = ones({4});
  int calls = 0;
  CHECK_THROWS_AS(record([&] {
                    relu(a);
                    if (++calls > 10) fail("stop");
                  }),
                  Error);
  CHECK(calls > 10);
  CHECK(host_listener.load() == nullptr);
  CHECK(spans_of(record([&] { relu(a); }, 1), HostWork::op).size() == 1);
}

TEST_CASE("threads have spans of their own, which nest", "[timeline]") {
  const Tensor a = ones({64}), b = ones({32});
  const Timeline timeline = record(
      [&] {
        std::thread other([&] {
          for (int i = 0; i < 20; ++i) relu(b);
        });
        for (int i = 0; i < 20; ++i) a + a;
        other.join();
      },
      1);
  std::map<std::string, std::set<int>> threads;
  std::map<int, std::int64_t> end;
  for (const HostSpan& span : spans_of(timeline, HostWork::op)) {
    threads[span.name].insert(span.thread);
    CHECK(span.start_ns >= end[span.thread]);
    end[span.thread] = span.end_ns;
  }
  CHECK(threads["add"] == std::set<int>{0});
  REQUIRE(threads["relu"].size() == 1);
  CHECK_FALSE(threads["relu"].contains(0));
  CHECK(spans_of(timeline, HostWork::op).size() == 40);
}

TEST_CASE("there is one recording at a time", "[timeline]") {
  const Tensor a = ones({4});
  std::string message;
  record([&] {
    if (!host_listener.load() || !message.empty()) return;
    try {
      record([&] { relu(a); });
    } catch (const Error& error) {
      message = error.what();
    }
  });
  CHECK(message == "[record_timeline] expected one recording at a time, got a second one");
  CHECK_THROWS_WITH(record_timeline(cpu, [] {}, {.steps = 0}),
                    "[record_timeline] expected at least one step, got 0");
}

TEST_CASE("shares count the time in steps once", "[timeline]") {
  const Timeline timeline = recorded();
  CHECK(timeline.step_ns() == 2000);
  CHECK(timeline.busy_ns() == 250 + 100);  // two kernels overlap; one ends after its step
  CHECK(timeline.host_ns(HostWork::op) == 500);
  CHECK(timeline.host_ns(HostWork::allocation) == 50);
  CHECK(timeline.host_ns(HostWork::wait) == 0);
  CHECK(timeline.perturbation() == Approx(0.05));
  CHECK(timeline.busy_share() == Approx(0.175));  // 175 ns of each untraced step of 1000
  CHECK(Timeline().busy_share() == 0);
}

TEST_CASE("a chrome trace has a track per thread and stream, arrows and what is missing",
          "[timeline]") {
  Timeline timeline = recorded();
  timeline.missing = {"CUPTI dropped 3 records"};
  timeline.memory = {{1300, 4096}};
  timeline.machine = "a machine";
  timeline.date = "2026-01-02T03:04:05Z";
  const Json document = Json::parse(chrome_trace(timeline, "two \"ops\""));
  check_slices(document);
  std::map<std::string, int> phases;
  for (const Json& event : document["traceEvents"]) ++phases[event["ph"]];
  CHECK(phases["X"] == 2 + 4 + 3);
  CHECK(phases["s"] == 3);
  CHECK(phases["f"] == 3);
  CHECK(phases["C"] == 1);
  CHECK(document["otherData"]["what"] == "two \"ops\"");
  CHECK(document["otherData"]["complete"] == false);
  CHECK(document["otherData"]["machine"] == "a machine");
  CHECK(document["otherData"]["date"] == "2026-01-02T03:04:05Z");
  CHECK(document["otherData"]["missing"][0] == "CUPTI dropped 3 records");
  CHECK(document["otherData"]["perturbation"].get<double>() == Approx(0.05));
  std::set<std::string> names;
  for (const Json& event : document["traceEvents"]) {
    if (event["ph"] == "M") names.insert(event["args"]["name"]);
  }
  CHECK(names ==
        std::set<std::string>{"host", "steps", "thread 0", "cuda:0", "stream 0", "stream 1"});
}

TEST_CASE("a chrome trace has the idle gaps with their causes", "[timeline]") {
  const Timeline timeline = recorded();
  const Json document = Json::parse(chrome_trace(timeline, ""));
  check_slices(document);
  const Occupancy occupancy = occupancy_of(timeline);
  std::vector<Json> gaps;
  for (const Json& event : document["traceEvents"])
    if (event.value("cat", "") == "gap") gaps.push_back(event);
  REQUIRE(gaps.size() == occupancy.gaps.size());
  double us = 0;
  for (const Json& gap : gaps) us += gap["dur"].get<double>();
  CHECK(us == Approx(static_cast<double>(occupancy.wall_ns - occupancy.busy_ns) * 1e-3));
  CHECK(gaps[0]["name"] == "idle: host");  // from 1000 to 1250
  CHECK(gaps[0]["args"]["cause"] == "host");
  CHECK(gaps[0]["args"]["host"] == "add (op)");
  CHECK(gaps[0]["args"]["before"] == "add");
  CHECK(gaps[0]["tid"] == 2);  // after the two streams
}

TEST_CASE("a chrome trace is valid whatever names and spans are", "[timeline]") {
  Timeline timeline = recorded();
  timeline.host[0].name = "a\"\\\n\x01\xff\xc3(\xe2\x82\xac\xed\xa0\x80";
  timeline.host[1].end_ns = 5000;  // past the op around it
  timeline.host[2].end_ns = 1100;  // before its start
  const Json document = Json::parse(chrome_trace(timeline, ""));
  check_slices(document);
  CHECK(Json::parse(chrome_trace(Timeline(), ""))["traceEvents"].size() == 2);
  bool found = false;
  for (const Json& event : document["traceEvents"]) {
    const std::string name = event["name"];
    found |= name.starts_with("a\"\\\n\x01\xef\xbf\xbd\xef\xbf\xbd(\xe2\x82\xac");
  }
  CHECK(found);
}
