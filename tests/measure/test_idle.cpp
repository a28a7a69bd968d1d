// Idle gaps of recorded timelines, and their causes.
#include "brrr/measure/idle.h"

#include <numeric>

#include "brrr/tensor/error.h"
#include "tests/harness/catch.h"
#include "tests/harness/recorded_timeline.h"

using namespace brrr;
using measure::DeviceSpan;
using measure::DeviceWork;
using measure::HostSpan;
using measure::HostWork;
using measure::IdleCause;
using measure::Occupancy;
using measure::Timeline;

namespace {

// Times in microseconds.
constexpr std::int64_t kUs = 1000;

HostSpan host(const char* name, HostWork work, std::int64_t start, std::int64_t end,
              int thread = 0) {
  return {
      .name = name, .work = work, .thread = thread, .start_ns = start * kUs, .end_ns = end * kUs};
}

DeviceSpan kernel(std::int64_t start, std::int64_t end, std::optional<std::size_t> cause,
                  int stream = 0, bool replayed = false) {
  return {.name = "kernel",
          .stream = stream,
          .start_ns = start * kUs,
          .end_ns = end * kUs,
          .cause = cause,
          .replayed = replayed};
}

DeviceSpan copy(std::int64_t start, std::int64_t end, std::optional<std::size_t> cause,
                int stream = 0) {
  DeviceSpan span = kernel(start, end, cause, stream);
  span.name = "copy";
  span.work = DeviceWork::copy;
  return span;
}

Timeline with_step(std::int64_t start, std::int64_t end) {
  Timeline t;
  t.device = cuda(0);
  t.steps = {host("step", HostWork::step, start, end)};
  return t;
}

std::vector<IdleCause> causes(const Occupancy& o) {
  std::vector<IdleCause> all;
  for (const measure::IdleGap& gap : o.gaps) all.push_back(gap.cause);
  return all;
}

// "matmul (op) 6", in microseconds, longest first.
std::vector<std::string> sources(const Occupancy& o) {
  std::vector<std::string> all;
  for (const measure::IdleSource& source : o.sources)
    all.push_back(to_string(source) + " " + std::to_string(source.ns / kUs));
  return all;
}

void check_closes(const Occupancy& o) {
  const std::int64_t idle = std::accumulate(o.idle_ns.begin(), o.idle_ns.end(), std::int64_t{0});
  CHECK(o.busy_ns + idle == o.wall_ns);
  std::int64_t gaps = 0, end = 0;
  for (const measure::IdleGap& gap : o.gaps) {
    CHECK(gap.ns() > 0);
    CHECK(gap.start_ns >= end);
    end = gap.end_ns;
    gaps += gap.ns();
  }
  CHECK(gaps == idle);
  std::int64_t sources = 0;
  for (const measure::IdleSource& source : o.sources) {
    CHECK(source.gaps > 0);
    sources += source.ns;
  }
  CHECK(sources == gaps);
  CHECK(o.transfer_ns <= o.busy_ns);
}

}  // namespace

TEST_CASE("a device that waits for each launch is idle by the host", "[idle]") {
  // Three ops of 10 us, each with a kernel of 2 us that is launched at the op's end.
  Timeline t = with_step(0, 34);
  for (int i = 0; i < 3; ++i) {
    const std::int64_t at = 10 * i;
    t.host.push_back(host(i == 1 ? "matmul" : "add", HostWork::op, at, at + 10));
    t.host.push_back(host("cuLaunchKernel", HostWork::launch, at + 7, at + 9));
    t.spans.push_back(kernel(at + 10, at + 12, t.host.size() - 1));
  }
  const Occupancy o = measure::occupancy_of(t);
  check_closes(o);
  CHECK(o.wall_ns == 34 * kUs);
  CHECK(o.busy_ns == 6 * kUs);
  CHECK(o.idle(IdleCause::host) == 28 * kUs);
  CHECK(causes(o) == std::vector(4, IdleCause::host));
  // From 12 on the host was in matmul until its launch.
  REQUIRE(o.gaps[1].host);
  CHECK(t.host[*o.gaps[1].host].name == "matmul");
  CHECK(o.gaps[1].next == 1u);
  CHECK_FALSE(o.gaps[3].next);  // until the host notices the end
  // 0 to 7 and 9 to 10, 22 to 27 and 29 to 30; launches 2 + 2 + 2; matmul 12 to 17 and 19 to 20.
  CHECK(sources(o) == std::vector<std::string>{"add (op) 14", "matmul (op) 6",
                                               "cuLaunchKernel (launch) 6",
                                               "outside of recorded calls 2"});
  CHECK(o.sources[1].gaps == 1);
  CHECK(o.sources[2].gaps == 3);
}

TEST_CASE("a queued device is idle by the latency of launches only", "[idle]") {
  Timeline t = with_step(0, 50);
  t.host = {host("add", HostWork::op, 0, 2),
            host("cuLaunchKernel", HostWork::launch, 1, 2),
            host("mul", HostWork::op, 2, 4),
            host("cuLaunchKernel", HostWork::launch, 3, 4),
            host("sum", HostWork::op, 4, 6),
            host("cuLaunchKernel", HostWork::launch, 5, 6),
            host("cuStreamSynchronize", HostWork::wait, 6, 50)};
  t.spans = {kernel(4, 20, 1), kernel(21, 30, 3), kernel(40, 48, 5)};
  const Occupancy o = measure::occupancy_of(t);
  check_closes(o);
  CHECK(o.idle(IdleCause::latency) == 1 * kUs);
  CHECK(o.idle(IdleCause::other) == 10 * kUs);  // too long for a launch
  CHECK(o.idle(IdleCause::host) == 6 * kUs);    // before the first kernel and after the last
  CHECK(sources(o) == std::vector<std::string>{"unknown, before kernel 10",
                                               "cuLaunchKernel (launch) 2",
                                               "cuStreamSynchronize (wait) 2", "add (op) 1",
                                               "mul (op) 1", "queued launches 1"});
  CHECK(measure::occupancy_of(t, {.latency_ns = 10 * kUs}).idle(IdleCause::other) == 0);
}

TEST_CASE("within a replay a gap after a kernel of another lane is a dependence", "[idle]") {
  Timeline t = with_step(0, 30);
  t.host = {host("cuGraphLaunch", HostWork::replay, 0, 3)};
  // Lanes 0 and 1 overlap; the last kernel waits for lane 1.
  t.spans = {kernel(5, 10, 0, 0, true), kernel(6, 20, 0, 1, true), kernel(22, 30, 0, 0, true)};
  const Occupancy o = measure::occupancy_of(t);
  check_closes(o);
  CHECK(o.busy_ns == 23 * kUs);
  CHECK(causes(o) == std::vector{IdleCause::host, IdleCause::dependence});
  CHECK(o.idle(IdleCause::dependence) == 2 * kUs);
  CHECK(o.gaps[0].host == 0u);
  CHECK(sources(o) == std::vector<std::string>{"cuGraphLaunch (replay) 3",
                                               "outside of recorded calls 2",
                                               "another stream, before kernel 2"});
  // Kernels of a lane overlap where one is set up early: those are on two streams.
  t.spans[0].lane = 0;
  t.spans[1].lane = t.spans[2].lane = 1;
  t.spans[2].ops = "add + mul";
  const Occupancy lanes = measure::occupancy_of(t);
  check_closes(lanes);
  CHECK(lanes.idle(IdleCause::latency) == 2 * kUs);
  CHECK(sources(lanes).back() == "launches inside a graph 2");
}

TEST_CASE("overlapping and enclosed kernels are busy once", "[idle]") {
  Timeline t = with_step(0, 20);
  t.host = {host("cuGraphLaunch", HostWork::replay, 0, 1)};
  t.spans = {kernel(0, 20, 0, 0, true), kernel(2, 5, 0, 1, true), kernel(4, 19, 0, 2, true)};
  const Occupancy o = measure::occupancy_of(t);
  check_closes(o);
  CHECK(o.busy() == 1);
  CHECK(o.gaps.empty());
}

TEST_CASE("copies keep the device busy, without kernels", "[idle]") {
  Timeline t = with_step(0, 40);
  t.host = {host("cuMemcpyHtoDAsync", HostWork::launch, 0, 1),
            host("cuLaunchKernel", HostWork::launch, 1, 2),
            host("cuMemcpyDtoHAsync", HostWork::launch, 2, 3)};
  // The second copy runs beside the kernel for 4 us.
  t.spans = {copy(2, 22, 0), kernel(22, 30, 1), copy(26, 40, 2, 1)};
  const Occupancy o = measure::occupancy_of(t);
  check_closes(o);
  CHECK(o.busy_ns == 38 * kUs);
  CHECK(o.transfer_ns == 30 * kUs);
  CHECK(o.share(o.transfer_ns) == 0.75);
}

TEST_CASE("spans count within the steps, each of which is divided by itself", "[idle]") {
  Timeline t = with_step(10, 20);
  t.steps.push_back(host("step", HostWork::step, 30, 40));
  t.host = {host("cuLaunchKernel", HostWork::launch, 0, 1),
            host("cuLaunchKernel", HostWork::launch, 11, 12),
            host("cuLaunchKernel", HostWork::launch, 22, 23)};
  t.spans = {kernel(2, 12, 0), kernel(15, 25, 1), kernel(32, 50, 2)};
  const Occupancy o = measure::occupancy_of(t);
  check_closes(o);
  CHECK(o.wall_ns == 20 * kUs);
  CHECK(o.busy_ns == (2 + 5 + 8) * kUs);
  CHECK(o.steps == 2);
  // 12 to 15: launched at 11, before the kernel of the step before ended.
  // 30 to 32: launched before the step began, so that the host did not keep it waiting.
  CHECK(causes(o) == std::vector{IdleCause::latency, IdleCause::other});
}

TEST_CASE("a kernel whose launch was not recorded has no known cause", "[idle]") {
  Timeline t = with_step(0, 10);
  t.spans = {kernel(2, 5, std::nullopt), kernel(6, 10, std::nullopt)};
  const Occupancy o = measure::occupancy_of(t);
  check_closes(o);
  CHECK(causes(o) == std::vector(2, IdleCause::other));
}

TEST_CASE("timelines without steps, spans or host", "[idle]") {
  const Occupancy nothing = measure::occupancy_of({});
  check_closes(nothing);
  CHECK(nothing.wall_ns == 0);
  CHECK(nothing.busy() == 0);

  const Occupancy idle = measure::occupancy_of(with_step(0, 5));
  check_closes(idle);
  CHECK(idle.busy() == 0);
  CHECK(idle.idle(IdleCause::host) == 5 * kUs);

  Timeline loose;
  loose.host = {host("cuLaunchKernel", HostWork::launch, 0, 1)};
  loose.spans = {kernel(12, 14, 0), kernel(5, 10, 0)};  // not in order
  const Occupancy spans = measure::occupancy_of(loose);
  check_closes(spans);
  CHECK(spans.wall_ns == 9 * kUs);
  CHECK(spans.idle(IdleCause::latency) == 2 * kUs);
}

TEST_CASE("the innermost span of the launching thread is what a gap waits for", "[idle]") {
  Timeline t = with_step(0, 20);
  t.host = {host("other thread", HostWork::op, 0, 20, 1),
            host("backward", HostWork::backward, 0, 18), host("mul", HostWork::op, 2, 16),
            host("malloc", HostWork::allocation, 4, 13),
            host("cuLaunchKernel", HostWork::launch, 14, 15)};
  t.spans = {kernel(17, 20, 4)};
  const Occupancy o = measure::occupancy_of(t);
  check_closes(o);
  REQUIRE(o.gaps.size() == 1);
  CHECK(o.gaps[0].host == 3u);
  REQUIRE(o.sources.size() == 4);
  CHECK(sources(o)[0] == "malloc (allocation) 9");
  CHECK(sources(o)[1] == "mul (op) 4");
  CHECK(sources(o)[2] == "backward (backward) 3");
}

TEST_CASE("a cause beyond the host's spans is refused", "[idle]") {
  Timeline t = with_step(0, 5);
  t.spans = {kernel(1, 2, 7)};
  CHECK_THROWS_WITH(measure::occupancy_of(t),
                    "[occupancy_of] expected causes among 0 host spans, got 7 of kernel");
}

// One step of a transformer, recorded on an H200: 116 kernels in 4 lanes of one graph. The numbers
// are those of the file, added up separately from this library.
TEST_CASE("the idle time of a recorded replay is its launch and small gaps", "[idle]") {
  const Timeline t = brrr::testing::recorded_timeline("h200-fused-transformer");
  REQUIRE(t.spans.size() == 116);
  REQUIRE(t.host.size() == 8);
  for (const DeviceSpan& span : t.spans) {
    REQUIRE(span.cause);
    CHECK(t.host[*span.cause].work == HostWork::replay);
    CHECK(span.replayed);
  }
  const Occupancy o = measure::occupancy_of(t);
  check_closes(o);
  CHECK(o.wall_ns == 1'466'889);
  CHECK(o.busy_ns == 1'277'714);
  CHECK(o.transfer_ns == 0);
  CHECK(o.gaps.size() == 37);
  CHECK(o.idle(IdleCause::host) == 169'450 + 8'171);  // until the first kernel, after the last one
  CHECK(o.idle(IdleCause::dependence) == 1'695);
  CHECK(o.idle(IdleCause::latency) == 1'762);
  CHECK(o.idle(IdleCause::other) == 8'097);  // one gap, longer than any latency
  CHECK(to_string(o.sources[0]) == "cuGraphLaunch (launch)");
  CHECK(o.sources[0].ns == 163'734);
  CHECK(o.gaps[0].next == 0u);
}
