// A watch of programs whose threads call steps at the same time, and of steps with several entries.
#include "brrr/measure/watch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "brrr/measure/step_cost.h"
#include "tests/harness/catch.h"
#include "tests/harness/json_schema.h"
#include "tests/harness/source_tree.h"
#include <brrr/brrr.h>

using namespace brrr;
using Catch::Contains;
using measure::WatchedStep;

namespace {

const WatchedStep& step_named(const std::vector<WatchedStep>& steps, const std::string& name) {
  const auto at = std::ranges::find(steps, name, &WatchedStep::name);
  REQUIRE(at != steps.end());
  return *at;
}

// Runs each on a thread of its own.
void run_together(const std::vector<std::function<void()>>& works) {
  std::vector<std::thread> threads;
  for (const auto& work : works) threads.emplace_back(work);
  for (std::thread& each : threads) each.join();
}

void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// An eager training of its own: as many calls in every training of this depth.
struct Training {
  explicit Training(int depth) : layers(depth) {
    for (int i = 0; i < depth; ++i) model.emplace_back(16, 16);
    for (nn::Linear& each : model) optimizers.emplace_back(each, optim::sgd(0.01));
  }
  void step() {
    Tensor y = x;
    for (nn::Linear& each : model) y = each(y);
    for (optim::Optimizer& each : optimizers) each.zero_grad();
    backward(mean(square(y)));
    for (optim::Optimizer& each : optimizers) each.step();
  }
  int layers;
  Tensor x = rand({8, 16});
  std::deque<nn::Linear> model;
  std::deque<optim::Optimizer> optimizers;
};

}  // namespace

TEST_CASE("steps of several threads have their own calls and times", "[watch]") {
  const measure::Watch watch;
  const Tensor a = rand({8, 8});
  auto first = compile([&] { return a + 1.0; }, {.name = "first"});
  auto second = compile([&] { return a * 2.0; }, {.name = "second"});
  for (int i = 0; i < 5; ++i) first();  // this thread is the first, and sampled
  run_together({[&] {
    for (int i = 0; i < 60; ++i) {
      second();
      rest();
    }
  }});
  for (int i = 0; i < 300; ++i) first();
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 2);
  const WatchedStep here = step_named(steps, "first"), there = step_named(steps, "second");
  CHECK(here.calls == 305);
  CHECK(there.calls == 60);
  CHECK(here.threads == std::vector{1});
  CHECK(there.threads == std::vector{2});
  CHECK(there.period.median > 1e-3);
  CHECK(there.outside_share() > 0.5);
  CHECK(here.why_no_code.empty());
  CHECK(there.why_no_code == "thread 1 is");
  CHECK_THAT(measure::to_text(steps), Contains("60 replays, graph, no arguments, on thread 2\n") &&
                                          Contains("your code        not sampled: thread 1 is\n"));
}

TEST_CASE("a step that threads share has the time between the calls of each", "[watch]") {
  const measure::Watch watch;
  const Tensor a = rand({8, 8});
  auto shared = compile([&](const Tensor& x) { return matmul(x, x); }, {.name = "shared"});
  const auto call = [&] {
    for (int i = 0; i < 60; ++i) {
      shared(a);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  };
  run_together({call, call, call});
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].calls == 180);
  CHECK(steps[0].threads.size() == 3);
  CHECK(steps[0].period.median > 2e-3);
  CHECK(steps[0].outside.median > 2e-3);
  REQUIRE(steps[0].diagnosis);
  CHECK(std::ranges::count(steps[0].diagnosis->doubts,
                           "threads wait for one another in its calls") == 1);
  CHECK_THAT(measure::to_text(steps), Contains(", on threads ") && Contains("waiting for other"));
}

TEST_CASE("eager steps of several threads are counted, each with its own calls", "[watch]") {
  const auto calls_alone = [](int depth) {
    Training training(depth);
    for (int i = 0; i < 3; ++i) training.step();
    return measure::cost_of_step(Device::cpu(), [&] { training.step(); }).eager;
  };
  const measure::EagerCalls shallow = calls_alone(1);
  const measure::Watch watch;
  std::atomic<int> running = 3;
  const auto train = [&running] {
    Training training(1);
    int steps = 0;
    for (--running; running > 0;) std::this_thread::yield();
    for (; steps < 150; ++steps) {
      training.step();
      if (steps % 5 == 0) rest();  // one thread at a time counts its calls
    }
  };
  run_together({train, train, train});
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 3);
  std::vector<int> threads;
  for (const WatchedStep& step : steps) {
    CHECK(step.name == "eager step");
    CHECK(step.calls == 149);
    // One thread at a time counts, and on a busy machine one may have ended before its turn.
    if (!step.launches.empty()) CHECK(std::ssize(step.launches) == shallow.kernels);
    CHECK(step.period.median > 0);
    REQUIRE(step.threads.size() == 1);
    threads.push_back(step.threads[0]);
    if (!step.why_no_code.empty()) CHECK_FALSE(step.diagnosis);
  }
  CHECK(std::ranges::any_of(steps, [](const auto& each) { return !each.launches.empty(); }));
  std::ranges::sort(threads);
  CHECK(threads == std::vector{1, 2, 3});
  CHECK_THAT(measure::to_text(steps), Contains("not judged, since its own code is not known") &&
                                          Contains("not sampled: thread "));
}

TEST_CASE("entries that take turns have their own kernels' times", "[watch]") {
  const measure::Watch watch;
  auto step = compile([](const Tensor& x) { return matmul(x, x); }, {.name = "step"});
  const Tensor large = rand({384, 384}), small = rand({8, 8});
  for (int i = 0; i < 60; ++i) {
    step(large);
    step(small);
    if (i == 10) step(rand({4, 4}));  // not looked at
  }
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 2);
  const auto in_kernels = [&](const std::string& signature) {
    const auto entry = std::ranges::find(
        steps, signature, [](const WatchedStep& each) { return each.entry->signature; });
    REQUIRE(entry != steps.end());
    REQUIRE(entry->diagnosis);
    REQUIRE(entry->diagnosis->device_time);
    return *entry->diagnosis->device_time;
  };
  CHECK(in_kernels("(f32[384, 384])") > 10 * in_kernels("(f32[8, 8])"));
}

TEST_CASE("threads that trace, replay and train at once are watched", "[watch]") {
  const testing::JsonSchemas schemas(testing::source_path("docs/schemas"));
  const measure::Watch watch;
  auto shared = compile([](const Tensor& x) { return sum(tanh(x)); },
                        {.name = "shared", .most_entries = 16, .fallback = OnFallback::ignore});
  auto outer = compile([&](const Tensor& x) { return shared(x) + 1.0; },
                       {.name = "outer", .most_entries = 16, .fallback = OnFallback::ignore});
  std::atomic<int> running = 3;
  const auto shapes = [&](auto& step, int first) {
    for (int size = first; size < first + 24; ++size) {  // more than there are entries for
      const Tensor x = rand({size});
      for (int i = 0; i < 12; ++i) step(x);
    }
    --running;
  };
  const auto reports = [&] {
    do {
      const auto document =
          nlohmann::json::parse(measure::to_json(watch.steps(), measure::describe_machine()));
      CHECK(schemas.violation(document, "watch.json").value_or("") == "");
    } while (running > 0);
  };
  run_together({[&] { shapes(shared, 4); }, [&] { shapes(outer, 10); },
                [&] {
                  Training training(2);
                  for (int i = 0; i < 100; ++i) training.step();
                  --running;
                },
                reports});
  std::int64_t calls = 0;
  for (const WatchedStep& step : watch.steps()) calls += step.name == "outer" ? step.calls : 0;
  CHECK(calls == 16 * 12);
}
