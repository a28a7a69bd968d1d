// Device time and host time of a step.
#include <chrono>
#include <thread>

#include "brrr/measure/timing.h"
#include "brrr/ops/functions.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"

using namespace brrr;

TEST_CASE("the device time of a call is distinguished from the host's", "[timing]") {
  const Tensor x = zeros({256}, {.device = testing::kGpu});
  relu(x);
  SECTION("the host is slow") {
    const auto call = [&] {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      relu(x);
    };
    const auto alone = measure::time_queued(testing::kGpu, call, 10, 5);
    REQUIRE(alone);
    CHECK(alone->median < 100e-6);
    CHECK(measure::time_host(testing::kGpu, call, 10, 5).median > 300e-6);
  }
  SECTION("the device is slow") {
    const auto call = [&] { testing::delay(300); };
    call();
    const auto alone = measure::time_queued(testing::kGpu, call, 10, 5);
    REQUIRE(alone);
    CHECK(alone->median > 290e-6);
    CHECK(measure::time_host(testing::kGpu, call, 10, 5).median < 100e-6);
  }
}
