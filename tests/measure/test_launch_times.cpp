// Measured times of launches, of recorded timelines and of steps on the CPU.
#include "brrr/measure/launch_times.h"

#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"

using namespace brrr;
using measure::DeviceSpan;
using measure::HostWork;
using measure::launch_seconds;
using measure::Timeline;

namespace {

using Seconds = std::vector<std::optional<double>>;

constexpr double kNs = 1e-9;

// A kernel of a replay.
DeviceSpan kernel(std::size_t replay, std::size_t launch, int lane, std::int64_t start,
                  std::int64_t end) {
  return {.name = "k",
          .start_ns = start,
          .end_ns = end,
          .cause = replay,
          .replayed = true,
          .launch = launch,
          .lane = lane};
}

}  // namespace

TEST_CASE("launches have the time of their kernels, the median over replays", "[launch-times]") {
  Timeline t;
  t.device = cuda(0);
  t.host = {{.name = "replay", .work = HostWork::replay, .start_ns = 0, .end_ns = 10},
            {.name = "replay", .work = HostWork::replay, .start_ns = 1000, .end_ns = 1010},
            {.name = "replay", .work = HostWork::replay, .start_ns = 2000, .end_ns = 2010}};
  // Launch 1 is two kernels; launch 2 runs beside both, in a lane of its own.
  for (const std::size_t replay : {0, 1, 2}) {
    const auto at = static_cast<std::int64_t>(1000 * replay);
    t.spans.push_back(kernel(replay, 0, 0, at + 20, at + 120));
    t.spans.push_back(kernel(replay, 2, 1, at + 20, at + 420));
    t.spans.push_back(kernel(replay, 1, 0, at + 120, at + 150));
    t.spans.push_back(kernel(replay, 1, 0, at + 200, at + 250 + 20 * static_cast<int>(replay)));
  }
  const Seconds seconds = launch_seconds(t, 4);
  REQUIRE(seconds.size() == 4);
  CHECK(*seconds[0] == Approx(100 * kNs));
  CHECK(*seconds[1] == Approx(100 * kNs));
  CHECK(*seconds[2] == Approx(400 * kNs));
  CHECK_FALSE(seconds[3]);

  SECTION("a kernel that is set up early counts from the end of the one before it") {
    t.spans = {kernel(0, 0, 0, 20, 120), kernel(0, 1, 0, 30, 150), kernel(0, 2, 0, 40, 140)};
    const Seconds early = launch_seconds(t, 3);
    CHECK(*early[0] == Approx(100 * kNs));
    CHECK(*early[1] == Approx(30 * kNs));
    CHECK(*early[2] == 0);
  }
  SECTION("a launch that one replay lacks, or that is not known, has none") {
    t.spans.pop_back();
    t.spans.pop_back();
    t.spans[1].launch.reset();
    const Seconds some = launch_seconds(t, 3);
    CHECK(some[0]);
    CHECK_FALSE(some[1]);
    CHECK_FALSE(some[2]);
  }
  SECTION("of a step without replays") {
    t.spans.clear();
    CHECK(launch_seconds(t, 2) == Seconds(2));
  }
}

TEST_CASE("launches of a step on the CPU are timed one by one", "[launch-times]") {
  const Tensor a = rand({512, 512});
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    auto step = compile([&] { return relu(matmul(a, a) + 1.0); }, {.mode = mode});
    step();
    const Timeline t =
        measure::record_timeline(cpu, [&] { step(); }, {.steps = 5, .untraced_steps = 6});
    const std::size_t launches = step.launches().size();
    REQUIRE(launches >= 1);
    const Seconds seconds = launch_seconds(t, launches);
    double sum = 0;
    for (const std::optional<double>& each : seconds) {
      REQUIRE(each);
      CHECK(*each > 0);
      sum += *each;
    }
    CHECK(sum <= static_cast<double>(t.step_ns()) * kNs);
    CHECK(launch_seconds(t, launches + 1) == Seconds(launches + 1));
    const auto product = std::ranges::max_element(seconds);
    CHECK_FALSE(
        step.launches()[static_cast<std::size_t>(product - seconds.begin())].product.empty());
  }
}
