// Sampling: the calls of a sample, the number of samples, and pauses between them.
#include "brrr/measure/timing.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/harness/catch.h"

namespace brrr::measure {
namespace {

// Each call sleeps for a millisecond. `idle`: the longest time between the end of a batch and the
// next one's beginning.
struct Sleeper {
  double end = 0, idle = 0;
  long calls = 0, longest = 0;

  Batch batch() {
    return [this](long n) {
      const double start = host_seconds();
      if (calls > 0) idle = std::max(idle, start - end);
      for (long i = 0; i < n; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      calls += n;
      longest = std::max(longest, n);
      end = host_seconds();
      return end - start;
    };
  }
};

}  // namespace

TEST_CASE("a sample repeats its call until it is long enough", "[timing]") {
  Sleeper sleeper;
  const Timing timing =
      time(sleeper.batch(), {.samples = 7, .sample_seconds = 8e-3, .budget_seconds = 10});
  CHECK(timing.samples == 7);
  CHECK(timing.median >= 1e-3);
  CHECK(timing.least <= timing.median);
  CHECK(timing.median <= timing.most);
  CHECK(sleeper.longest >= 2);
  CHECK(sleeper.longest <= 8);
}

TEST_CASE("the budget of a sampling limits its samples, to at least five", "[timing]") {
  Sleeper sleeper;
  CHECK(time(sleeper.batch(), {.sample_seconds = 4e-3, .budget_seconds = 0}).samples == 5);
  // At most 25 samples without pauses; with them each takes five times as long.
  const Sampling sampling{.samples = 100, .sample_seconds = 4e-3, .budget_seconds = 0.1};
  Sampling with_pauses = sampling;
  with_pauses.pause = 4;
  const int samples = time(sleeper.batch(), sampling).samples;
  CHECK(samples > 5);
  CHECK(time(sleeper.batch(), with_pauses).samples < samples);
}

TEST_CASE("a sampling with pauses waits before each sample", "[timing]") {
  Sleeper sleeper;
  constexpr double kSample = 4e-3;
  (void)time(sleeper.batch(),
             {.samples = 5, .sample_seconds = kSample, .budget_seconds = 0, .pause = 10});
  CHECK(sleeper.idle >= 10 * kSample / 2);  // a sample has at least half of its length
}

}  // namespace brrr::measure
