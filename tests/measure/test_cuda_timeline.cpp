// Timelines on the fake driver: through a fake CUPTI, and by events where there is none.
#include <algorithm>
#include <set>

#include "brrr/graph/compile.h"
#include "brrr/measure/chrome_trace.h"
#include "brrr/measure/host_recorder.h"
#include "brrr/measure/timeline.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/stream.h"
#include "tests/fake_cuda/cupti.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"

#include <nlohmann/json.hpp>

using namespace brrr;
using namespace brrr::measure;

namespace {

// A fake driver with the kernels of a few ops.
struct Driver {
  const testing::Caching caching;
  const testing::NoDiskCache off;
  testing::FakeCuda fake{{.with_nvrtc = true}};
  Driver() { testing::define_kernels(fake); }
  ~Driver() {
    if (std::uncaught_exceptions() == 0) synchronize(cuda(0));
  }
};

Timeline record(const std::function<void()>& step, int steps = 2) {
  return record_timeline(cuda(0), step, {.steps = steps, .untraced_steps = 6});
}

std::vector<DeviceSpan> kernels_of(const Timeline& timeline) {
  std::vector<DeviceSpan> kernels;
  for (const DeviceSpan& span : timeline.spans) {
    if (span.work == DeviceWork::kernel) kernels.push_back(span);
  }
  return kernels;
}

const HostSpan& cause_of(const Timeline& timeline, const DeviceSpan& span) {
  REQUIRE(span.cause);
  return timeline.host.at(*span.cause);
}

void check_no_overlap(const Timeline& timeline) {
  std::map<int, std::int64_t> end;
  for (const DeviceSpan& span : timeline.spans) {
    CHECK(span.start_ns >= end[span.stream]);
    end[span.stream] = span.end_ns;
  }
}

}  // namespace

TEST_CASE("without CUPTI, ops on CUDA are timed by events and the timeline says so", "[timeline]") {
  Driver driver;
  const Tensor a = zeros({8}, {.device = cuda(0)}), b = zeros({8}, {.device = cuda(0)});
  const Timeline timeline = record([&] { relu(reshape(a + b, {2, 4})); });
  CHECK(timeline.source == "events");
  CHECK_FALSE(timeline.is_complete());
  REQUIRE(timeline.missing.size() == 1);
  CHECK(timeline.missing[0].find("cuptiSubscribe failed") != std::string::npos);
  CHECK(timeline.missing[0].find("not distinguished") != std::string::npos);
  REQUIRE(timeline.steps.size() == 2);
  // A view gives the device nothing.
  REQUIRE(timeline.spans.size() == 4);
  CHECK(timeline.spans[0].name == "add");
  CHECK(timeline.spans[1].name == "relu");
  CHECK(timeline.spans[0].ops == "add");
  CHECK(cause_of(timeline, timeline.spans[0]).name == "add");
  CHECK(timeline.spans[0].end_ns > timeline.spans[0].start_ns);
  CHECK_FALSE(timeline.spans[0].replayed);
}

TEST_CASE("without CUPTI, a replay is one span", "[timeline]") {
  Driver driver;
  const Tensor a = zeros({8}, {.device = cuda(0)});
  Tensor x = zeros({8}, {.device = cuda(0)});
  auto step = compile([&] { add_(mul_(x, a), a); });
  const Timeline timeline = record([&] { step(); });
  REQUIRE(timeline.spans.size() == 2);
  CHECK(timeline.spans[0].name == "replay");
  CHECK(timeline.spans[0].replayed);
  // What a replay shows to observers is no work of the host.
  CHECK(std::ranges::count(timeline.host, HostWork::op, &HostSpan::work) == 0);
  CHECK(std::ranges::count(timeline.host, HostWork::replay, &HostSpan::work) == 2);
}

#if BRRR_HAS_CUPTI

TEST_CASE("CUPTI's kernels have the ops that launched them", "[timeline]") {
  Driver driver;
  const testing::FakeCupti cupti;
  const Tensor a = zeros({8}, {.device = cuda(0)}), b = zeros({8}, {.device = cuda(0)});
  const Timeline timeline = record([&] { relu(a + b); });
  CHECK(timeline.source == "CUPTI 13.0");
  CHECK(timeline.is_complete());
  CHECK_FALSE(cupti.in_use());
  const std::vector<DeviceSpan> kernels = kernels_of(timeline);
  REQUIRE(kernels.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const HostSpan& op = cause_of(timeline, kernels[i]);
    CHECK(op.work == HostWork::op);
    CHECK(op.name == (i % 2 ? "relu" : "add"));
    CHECK(kernels[i].ops == op.name);
    // On one clock: the kernel starts while the op that launches it runs.
    CHECK(kernels[i].start_ns >= op.start_ns);
    CHECK(kernels[i].start_ns <= op.end_ns);
    CHECK_FALSE(kernels[i].replayed);
  }
  int launches = 0, waits = 0;
  for (const HostSpan& span : timeline.host) {
    if (span.work == HostWork::launch && span.name.starts_with("cuLaunchKernel")) {
      ++launches;
      CHECK(span.thread == 0);
    }
    if (span.name == "cuStreamSynchronize") {
      ++waits;
      CHECK(span.work == HostWork::wait);
    }
  }
  CHECK(launches == 4);
  CHECK(waits >= 2);
  check_no_overlap(timeline);
}

TEST_CASE("kernels of a replay have their launches", "[timeline]") {
  Driver driver;
  const Tensor a = zeros({8}, {.device = cuda(0)});
  Tensor x = zeros({8}, {.device = cuda(0)});
  auto step = compile([&] { relu_(add_(mul_(x, a), a)); });
  const auto record_with = [&](bool other_symbols) {
    const testing::FakeCupti cupti({.other_symbols = other_symbols});
    return record([&] { step(); });
  };
  const Timeline timeline = record_with(false);
  CHECK(timeline.is_complete());
  const std::vector<DeviceSpan> kernels = kernels_of(timeline);
  REQUIRE(kernels.size() == 6);
  // The fake ends nodes in the reverse order.
  const char* const ops[] = {"relu", "add", "mul"};
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(kernels[i].replayed);
    CHECK(kernels[i].ops == ops[i % 3]);
    REQUIRE(kernels[i].launch);
    CHECK(*kernels[i].launch == 2 - i % 3);
    CHECK(kernels[i].lane == std::optional<int>(0));
    CHECK(cause_of(timeline, kernels[i]).work == HostWork::replay);
  }
  check_no_overlap(timeline);  // of one stream, where they do overlap
  std::set<int> streams;
  for (const DeviceSpan& kernel : kernels) streams.insert(kernel.stream);
  CHECK(streams.size() > 1);

  for (const DeviceSpan& kernel : kernels_of(record_with(true))) {
    CHECK(kernel.replayed);
    CHECK_FALSE(kernel.launch);
    CHECK(kernel.ops.empty());
    CHECK(kernel.name == "another_kernel");
  }
}

TEST_CASE("kernels of a replay whose nodes are numbered otherwise are known by symbols",
          "[timeline]") {
  Driver driver;
  const testing::FakeCupti cupti({.nodes_reversed = true});
  const Tensor a = zeros({8}, {.device = cuda(0)});
  Tensor x = zeros({8}, {.device = cuda(0)});
  auto step = compile([&] { mul_(relu_(add_(mul_(x, a), a)), a); });
  const std::vector<DeviceSpan> kernels = kernels_of(record([&] { step(); }, 1));
  REQUIRE(kernels.size() == 4);
  const char* const ops[] = {"mul", "relu", "add", "mul"};
  const std::optional<std::size_t> launches[] = {std::nullopt, 2, 1, std::nullopt};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(kernels[i].ops == ops[i]);
    CHECK(kernels[i].launch == launches[i]);
  }
}

TEST_CASE("a fused kernel has the names of its ops", "[timeline]") {
  Driver driver;
  const testing::FakeCupti cupti;
  const Tensor a = zeros({8}, {.device = cuda(0)});
  Tensor x = zeros({8}, {.device = cuda(0)});
  auto step = compile([&] { relu_(add_(mul_(x, a), a)); }, {.mode = Mode::fused});
  const std::vector<DeviceSpan> kernels = kernels_of(record([&] { step(); }));
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0].ops == "mul + add + relu");
  CHECK(kernels[0].launch == std::optional<std::size_t>(0));
}

TEST_CASE("what CUPTI drops or refuses is missing", "[timeline]") {
  Driver driver;
  const Tensor a = zeros({8}, {.device = cuda(0)});
  const auto step = [&] { relu(a); };
  const auto missing_with = [&](testing::FakeCuptiOptions options) {
    const testing::FakeCupti cupti(options);
    const Timeline timeline = record(step);
    CHECK_FALSE(cupti.in_use());
    CHECK(timeline.source == "CUPTI 13.0");
    CHECK_FALSE(timeline.is_complete());
    REQUIRE(timeline.missing.size() == 1);
    return timeline.missing[0];
  };
  CHECK(missing_with({.dropped = 12}) == "CUPTI dropped 12 records");
  CHECK(missing_with({.without_fills = true}) ==
        "fills: cuptiActivityEnable failed: CUPTI_ERROR_OTHER (14)");
}

TEST_CASE("kernels that CUPTI says nothing of are missed", "[timeline]") {
  Driver driver;
  const Tensor a = zeros({8}, {.device = cuda(0)});
  Tensor x = zeros({8}, {.device = cuda(0)});
  auto replay = compile([&] { add_(mul_(x, a), a); });
  const auto missing = [&](const std::function<void()>& step, std::size_t lost) {
    const testing::FakeCupti cupti({.lost_kernels = lost});
    return record(step).missing;
  };
  using List = std::vector<std::string>;
  CHECK(missing([&] { relu(a); }, 1'000'000) ==
        List{"the driver launched kernels, of which none is recorded"});
  // The traced steps before those that are kept launch two kernels each.
  CHECK(missing([&] { replay(); }, 0).empty());
  CHECK(missing([&] { replay(); }, 2 * 3 + 1) ==
        List{"a replay launched 2 kernels, of which 1 are recorded"});
}

TEST_CASE("where CUPTI cannot start, events are used and the reason is said", "[timeline]") {
  Driver driver;
  const testing::FakeCupti cupti;
  const Tensor a = zeros({8}, {.device = cuda(0)});
  const auto reason_of = [&](const char* call, CUptiResult code) {
    cu::fail_call(call, 1, code);
    const Timeline timeline = record([&] { relu(a); });
    cu::clear_faults();
    CHECK_FALSE(cupti.in_use());
    CHECK(timeline.source == "events");
    CHECK(timeline.spans.size() == 2);
    REQUIRE(timeline.missing.size() == 1);
    return timeline.missing[0];
  };
  CHECK(reason_of("cuptiSubscribe", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
            .starts_with("CUPTI cannot be used: cuptiSubscribe failed: "
                         "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39); "));
  CHECK(reason_of("cuptiActivityEnable", CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)
            .starts_with("CUPTI cannot be used: cuptiActivityEnable failed: "
                         "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35); "));
  CHECK(reason_of("cuptiActivityRegisterCallbacks", CUPTI_ERROR_NOT_INITIALIZED)
            .find("cuptiActivityRegisterCallbacks") != std::string::npos);
}

TEST_CASE("CUPTI's own clock is converted to the host's", "[timeline]") {
  Driver driver;
  const testing::FakeCupti cupti;
  const Tensor a = zeros({8}, {.device = cuda(0)});
  cu::fail_call("cuptiActivityRegisterTimestampCallback", 1, CUPTI_ERROR_NOT_INITIALIZED);
  const Timeline timeline = record([&] { relu(a); });
  cu::clear_faults();
  CHECK(timeline.is_complete());
  REQUIRE(timeline.spans.size() == 2);  // inside of the recorded steps, so not an hour off
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(timeline.spans[i].start_ns >= timeline.steps[i].start_ns);
    CHECK(timeline.spans[i].start_ns <= timeline.steps[i].end_ns);
  }
}

TEST_CASE("a step that throws ends the recording on CUDA", "[timeline]") {
  Driver driver;
  const testing::FakeCupti cupti;
  const Tensor a = zeros({8}, {.device = cuda(0)}), b = zeros({9}, {.device = cuda(0)});
  int calls = 0;
  CHECK_THROWS_AS(record([&] {
                    relu(a);
                    if (++calls > 10) a + b;
                  }),
                  Error);
  CHECK_FALSE(cupti.in_use());
  CHECK(kernels_of(record([&] { relu(a); })).size() == 2);
}

TEST_CASE("a trace of CUDA has arrows from ops to kernels", "[timeline]") {
  Driver driver;
  const testing::FakeCupti cupti;
  const Tensor a = zeros({8}, {.device = cuda(0)});
  const Timeline timeline = record([&] { fill_(relu(a), 0.0); });
  const auto document = nlohmann::json::parse(chrome_trace(timeline, "relu"));
  std::map<int, nlohmann::json> starts, ends;
  for (const auto& event : document["traceEvents"]) {
    if (event["ph"] == "s") starts[event["id"]] = event;
    if (event["ph"] == "f") ends[event["id"]] = event;
  }
  CHECK(starts.size() == timeline.spans.size());
  CHECK(ends.size() == starts.size());
  for (const auto& [id, end] : ends) {
    CHECK(end["pid"] == 2);
    CHECK(starts.at(id)["pid"] == 1);
    CHECK(starts.at(id)["ts"].get<double>() <= end["ts"].get<double>());
  }
  CHECK(document["otherData"]["source"] == "CUPTI 13.0");
  CHECK(document["otherData"]["complete"] == true);
}

#endif
