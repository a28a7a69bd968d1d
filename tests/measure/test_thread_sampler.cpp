// The limits of a sampler, and what its samples stand for.
#include "brrr/measure/thread_sampler.h"

#include <chrono>
#include <optional>
#include <thread>

#include "brrr/measure/timing.h"
#include "brrr/measure/unwind.h"
#include "brrr/measure/watch.h"
#include "tests/harness/catch.h"
#include "tests/harness/own_code.h"
#include <brrr/brrr.h>

using namespace brrr;
using Catch::Contains;
using measure::ThreadSampler;

namespace {

void wait_until_ended(const ThreadSampler& sampler, double seconds) {
  const double end = measure::host_seconds() + seconds;
  while (!sampler.part() && measure::host_seconds() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Waits below so many frames.
[[gnu::noinline]] int wait_below(int frames, const ThreadSampler& sampler, double seconds) {
  if (frames == 0) {
    wait_until_ended(sampler, seconds);
    return 0;
  }
  const int below = wait_below(frames - 1, sampler, seconds);
  asm volatile("");  // no tail call
  return below + 1;
}

}  // namespace

TEST_CASE("a sampler ends with the samples that it has memory for", "[watch]") {
  ThreadSampler sampler({.period_seconds = 1e-4, .most_samples = 5});
  if (!sampler.problem().empty()) return;
  sampler.begin();
  while (sampler.end() < 4) {
    sampler.begin();
    own_code::wait_for_batch();
  }
  sampler.begin();
  wait_until_ended(sampler, 10);
  own_code::wait_for_batch();  // past the limit
  CHECK(sampler.end() == 5);
  CHECK(sampler.samples().samples.size() == 5);
  REQUIRE(sampler.part());
  CHECK(sampler.part()->ended == "it has 5 samples");
  CHECK(sampler.part()->seconds < sampler.part()->of);
}

TEST_CASE("a sampler ends after its time", "[watch]") {
  ThreadSampler sampler({.period_seconds = 1e-4, .seconds = 0.05});
  if (!sampler.problem().empty()) return;
  CHECK_FALSE(sampler.part());
  sampler.begin();
  wait_until_ended(sampler, 10);
  const std::size_t samples = sampler.end();
  REQUIRE(sampler.part());
  CHECK(sampler.part()->ended == "it ends after 0.05 s");
  CHECK(sampler.part()->seconds >= 0.05);
  sampler.begin();
  own_code::wait_for_batch();
  CHECK(sampler.end() == samples);
}

TEST_CASE("a sampler ends when deep stacks fill its memory", "[watch]") {
  constexpr int kSamples = 40;
  ThreadSampler sampler({.period_seconds = 1e-4, .most_samples = kSamples});
  if (!sampler.problem().empty()) return;
  sampler.begin();
  CHECK(wait_below(400, sampler, 10) == 400);
  const std::size_t samples = sampler.end();
  REQUIRE(sampler.part());
  CHECK(sampler.part()->ended == "its memory for stacks is full");
  CHECK(samples > 0);
  CHECK(samples < kSamples);
  for (const measure::HostSample& each : sampler.samples().samples)
    CHECK(each.end - each.begin <= measure::kMostFrames);
}

TEST_CASE("a sampler ends with its thread", "[watch]") {
  std::optional<ThreadSampler> sampler;
  std::thread([&] {
    sampler.emplace(measure::ThreadSampling{.period_seconds = 1e-4}).begin();
  }).join();
  if (!sampler->problem().empty()) return;
  wait_until_ended(*sampler, 10);
  REQUIRE(sampler->part());
  CHECK(sampler->part()->ended == "the thread ended or takes no signals");
}

TEST_CASE("a report says for what part of a run its samples stand", "[watch]") {
  const measure::Watch watch({.sampling = {.period_seconds = 2e-4, .most_samples = 12}});
  const Tensor a = rand({4});
  auto step = compile([&] { return a + 1.0; });
  for (int i = 0; i < 30; ++i) {
    own_code::wait_for_batch();
    step();
  }
  const std::vector<measure::WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 1);
  if (!steps[0].why_no_code.empty()) return;
  REQUIRE(steps[0].sampled);
  CHECK(steps[0].sampled->seconds < steps[0].sampled->of);
  CHECK_THAT(measure::to_text(steps), Contains("your code        in ") &&
                                          Contains(" (sampling ended: it has 12 samples): "));
}
