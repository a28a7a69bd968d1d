// Calls of a step that a watch knows, most of which it does not see.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "brrr/measure/replays.h"
#include "brrr/measure/watch.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;
using measure::WatchedStep;

namespace {

constexpr int kCalls = 20000;

// Hides calls of each step once there are enough times of it.
measure::WatchOptions hiding() { return {.seconds = 0}; }

std::int64_t calls_of(const std::vector<WatchedStep>& steps, const std::string& name) {
  std::int64_t calls = 0;
  for (const WatchedStep& each : steps) calls += each.name == name ? each.calls : 0;
  return calls;
}

// Sees which calls are hidden: those that it is not told of.
class Counting final : public core::ReplayListener {
 public:
  void called(core::CompiledStep& step) override { hidden += (step.unseen & 0xffffffffU) > 0; }
  void returned(core::CompiledStep&, int) override { ++calls; }
  int calls = 0, hidden = 0;
};

}  // namespace

TEST_CASE("calls that a watch does not see are counted", "[watch]") {
  const measure::Watch watch(hiding());
  const Tensor a = rand({4});
  auto step = compile([&] { return a + 1.0; }, {.name = "step"});
  auto ends = std::make_unique<Compiled<std::function<Tensor()>>>(
      compile(std::function<Tensor()>([&] { return a * 2.0; }), {.name = "ends"}));
  for (int i = 0; i < kCalls; ++i) {
    step();
    (*ends)();
    if (i == kCalls / 2) CHECK(calls_of(watch.steps(), "step") == i + 1);
  }
  ends.reset();
  const std::vector<WatchedStep> steps = watch.steps();
  CHECK(calls_of(steps, "step") == kCalls);
  CHECK(calls_of(steps, "ends") == kCalls);
  for (const WatchedStep& each : steps) {
    CHECK(each.period.median > 0);
    CHECK(each.period.median < 1e-3);  // between two calls, not between those that are seen
    CHECK(each.outside.median < each.period.median);
  }
}

TEST_CASE("most calls of a short step that is known are hidden", "[watch]") {
  const Tensor a = rand({4});
  const auto seen_of = [&](measure::WatchOptions options) {
    const measure::Watch watch(std::move(options));
    auto step = compile([&] { return a + 1.0; }, {.name = "step"});
    for (int i = 0; i < kCalls; ++i) step();
    CHECK(calls_of(watch.steps(), "step") == kCalls);
    return watch.steps()[0].period.samples;
  };
  CHECK(seen_of({}) > 4000);
  CHECK(seen_of(hiding()) < 4000);
}

TEST_CASE("other listeners see the calls that a watch does not", "[watch]") {
  const measure::Watch watch(hiding());
  const Tensor a = rand({4});
  auto step = compile([&] { return a + 1.0; }, {.name = "step"});
  for (int i = 0; i < kCalls; ++i) step();
  CHECK(measure::replays_in([&] { step(); }).size() == 1);
  Counting counting;
  {
    const measure::ListeningToReplays listening(counting);
    for (int i = 0; i < 100; ++i) step();
  }
  CHECK(counting.calls == 100);
  CHECK(counting.hidden == 0);
  for (int i = 0; i < 100; ++i) step();
  CHECK(calls_of(watch.steps(), "step") == kCalls + 201);
}

TEST_CASE("an entry that is new while calls are not seen has its trace and its calls", "[watch]") {
  const measure::Watch watch(hiding());
  const Tensor small = rand({4}), large = rand({8});
  auto step = compile([](const Tensor& x) { return x + 1.0; }, {.name = "step"});
  for (int i = 0; i < kCalls; ++i) step(small);
  for (int i = 0; i < 10; ++i) step(large);
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 2);
  CHECK(calls_of(steps, "step") == kCalls + 10);
  const auto of_large = std::ranges::find(
      steps, "(f32[8])", [](const WatchedStep& each) { return each.entry->signature; });
  REQUIRE(of_large != steps.end());
  CHECK(of_large->calls == 10);
  for (const WatchedStep& each : steps) {
    REQUIRE(each.others.size() == 2);
    for (const measure::PredictedMode& mode : each.others) CHECK(mode.predicted);
  }
}

TEST_CASE("an update after a replay that is not seen ends no eager step", "[watch]") {
  const measure::Watch watch(hiding());
  nn::Linear model(4, 4);
  optim::Optimizer optimizer(model, optim::sgd(0.01));
  const Tensor x = rand({2, 4});
  auto gradients = compile(
      [&] {
        optimizer.zero_grad();
        backward(mean(square(model(x))));
      },
      {.name = "gradients"});
  for (int i = 0; i < kCalls; ++i) {
    gradients();
    optimizer.step();
  }
  const std::vector<WatchedStep> steps = watch.steps();
  CHECK(steps.size() == 1);
  CHECK(calls_of(steps, "gradients") == kCalls);
}

TEST_CASE("threads that share a step have all their calls counted", "[watch]") {
  const measure::Watch watch(hiding());
  const Tensor a = rand({4});
  auto step = compile([&] { return a + 1.0; }, {.name = "step"});
  const auto call = [&] {
    for (int i = 0; i < kCalls; ++i) step();
  };
  call();
  std::thread first(call), second(call);
  first.join();
  second.join();
  CHECK(calls_of(watch.steps(), "step") == 3 * kCalls);
}
