// A watch of steps on a card, whose device time comes from events.
#include "brrr/measure/watch.h"

#include <chrono>
#include <thread>

#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;

TEST_CASE("a watch sees how long a card works on a program's steps", "[watch][timing]") {
  const Tensor a = rand({2048, 2048}, {.device = testing::kGpu});
  auto step = compile([&] { return sum(matmul(a, a)); }, {.mode = Mode::fused});
  for (const bool pauses : {false, true}) {
    const measure::Watch watch;
    double seconds = 0;
    for (int i = 0; i < 80; ++i) {
      item(step());
      if (pauses) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    const std::vector<measure::WatchedStep> steps = watch.steps();
    REQUIRE(steps.size() == 1);
    const measure::WatchedStep& seen = steps[0];
    CHECK(seen.entry->device == testing::kGpu);
    REQUIRE(seen.diagnosis);
    REQUIRE(seen.diagnosis->device_time);
    seconds = *seen.diagnosis->device_time;
    CHECK(seconds > 20e-6);  // 17 GFLOP
    CHECK(seconds <= seen.period.median);
    CHECK(seen.diagnosis->regime);
    CHECK((seen.outside_share() > 0.5) == pauses);
    if (pauses) CHECK(seen.diagnosis->regime == measure::Regime::overhead);
  }
}
