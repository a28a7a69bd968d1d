// What a watch sees of a program's compiled steps.
#include "brrr/measure/watch.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include <nlohmann/json.hpp>

#include "brrr/tensor/sanitizers.h"
#include "tests/harness/catch.h"
#include "tests/harness/json_schema.h"
#include "tests/harness/own_code.h"
#include "tests/harness/source_tree.h"
#include <brrr/brrr.h>

using namespace brrr;
using Catch::Contains;
using measure::WatchedStep;
using own_code::prepare_batch;
using own_code::wait_for_batch;

namespace {

const WatchedStep* step_of(const std::vector<WatchedStep>& steps, const std::string& name,
                           const std::string& signature = "") {
  for (const WatchedStep& each : steps) {
    if (each.name == name && (signature.empty() || each.entry->signature == signature))
      return &each;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("a watch sees the calls of compiled steps, and what is between them", "[watch]") {
  const measure::Watch watch;
  CHECK(watch.steps().empty());
  const Tensor a = rand({64, 64}), b = rand({32, 64});
  auto busy = compile([](const Tensor& x) { return sum(tanh(matmul(x, transpose(x, 0, 1)))); },
                      {.mode = Mode::fused, .name = "busy"});
  auto idle = compile([&] { return sum(a * 2.0); }, {.name = "idle"});
  for (int i = 0; i < 60; ++i) {
    busy(a);
    if (i % 2 == 0) busy(b);  // an entry of its own
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    idle();
  }
  a + a;  // eager calls are not of a step
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 3);
  const WatchedStep* const wide = step_of(steps, "busy", "(f32[64, 64])");
  const WatchedStep* const flat = step_of(steps, "busy", "(f32[32, 64])");
  const WatchedStep* const last = step_of(steps, "idle");
  REQUIRE((wide && flat && last));
  CHECK(wide->calls == 60);
  CHECK(flat->calls == 30);
  CHECK(last->calls == 60);
  CHECK(wide->entry->mode == Mode::fused);
  CHECK(last->entry->device == Device::cpu());
  CHECK_FALSE(wide->launches.empty());
  CHECK(wide->period.median > 1e-3);
  CHECK(wide->in_call.median < wide->period.median);
  CHECK(last->outside_share() > 0.5);  // it sleeps before each call
  CHECK(last->outside.median > 1e-3);
  CHECK(wide->outside_share() < last->outside_share());
  REQUIRE(last->diagnosis);
  CHECK(last->diagnosis->regime);
  CHECK(last->diagnosis->device_time);
  CHECK_THAT(measure::to_text(steps),
             Contains("brrr: idle\n") && Contains("bound by your own code between calls") &&
                 Contains("60 replays, graph, no arguments") && Contains("60 replays, fused"));
}

TEST_CASE("a watch says where the program's own code is", "[watch]") {
  const measure::Watch watch;
  const Tensor a = rand({4});
  auto after_work = compile([&] { return a + 1.0; }, {.name = "after work"});
  auto after_waiting = compile([&] { return a * 2.0; }, {.name = "after waiting"});
  for (int i = 0; i < 60; ++i) {
    prepare_batch();
    after_work();
    wait_for_batch();
    after_waiting();
  }
  const std::vector<WatchedStep> steps = watch.steps();
  const WatchedStep* const work = step_of(steps, "after work");
  const WatchedStep* const waiting = step_of(steps, "after waiting");
  REQUIRE((work && waiting));
  REQUIRE(work->why_no_code.empty());
  const auto is_at = [](const measure::CodeLine& line, const std::string& function, bool waits) {
    return line.place.find(function) != std::string::npos && line.waits == waits;
  };
  const auto share_at = [&](const WatchedStep& step, const std::string& function, bool waits) {
    double share = 0;
    for (const measure::CodeLine& line : step.code)
      share += is_at(line, function, waits) ? line.share : 0;
    return share;
  };
  CHECK(share_at(*waiting, "wait_for_batch", true) > 0.8);
#if !BRRR_TSAN  // which calls handlers later
  CHECK(share_at(*work, "prepare_batch", false) > 0.8);
#endif
  double all = 0;
  for (const measure::CodeLine& line : waiting->code) all += line.share;
  CHECK(all == Approx(1).epsilon(0.02));
  CHECK_THAT(measure::to_text(steps), Contains("waiting at ") && Contains("wait_for_batch"));
}

namespace {

Tensor train_once(nn::Module& model, optim::Optimizer& optimizer, const Tensor& batch) {
  const Tensor loss = mean(square(model(batch)));
  optimizer.zero_grad();
  backward(loss);
  optimizer.step();
  return loss;
}

// A small model in eager training; `load` makes a batch.
template <class Load>
void train_eagerly(int steps, const Load& load) {
  nn::Linear model(16, 4);
  optim::Optimizer optimizer(model, optim::sgd(0.01));
  for (int i = 0; i < steps; ++i) train_once(model, optimizer, load());
}

}  // namespace

TEST_CASE("a watch sees eager steps, which end with an update", "[watch]") {
  const measure::Watch watch;
  const Tensor x = rand({8, 16});
  train_eagerly(60, [&] { return x; });
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 1);
  const WatchedStep& step = steps[0];
  CHECK(step.name == "eager step");
  CHECK(step.calls == 59);  // from the first update on
  CHECK(step.mode() == Mode::eager);
  CHECK_FALSE(step.entry);
  CHECK(step.period.median > 0);
  CHECK(step.predicted.ps() > 0);
  REQUIRE(step.diagnosis);
  CHECK(step.diagnosis->regime);
  const auto products = std::ranges::count(step.launches, "affine", &core::LaunchCost::name);
  CHECK(products >= 1);
  CHECK_THAT(measure::to_text(steps), Contains("59 steps, eager") && Contains("kernels"));
}

TEST_CASE("a compiled step in eager mode is an eager step", "[watch]") {
  const measure::Watch watch;
  nn::Linear model(16, 4);
  optim::Optimizer optimizer(model, optim::sgd(0.01));
  auto step = compile([&](const Tensor& batch) { return train_once(model, optimizer, batch); },
                      {.mode = Mode::eager, .name = "train"});
  const Tensor x = rand({8, 16});
  for (int i = 0; i < 60; ++i) {
    prepare_batch();
    step(x);
  }
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].name == "train");
  CHECK(steps[0].mode() == Mode::eager);
  CHECK(steps[0].calls == 59);
#if !BRRR_TSAN
  CHECK(steps[0].outside_share() > 0.8);
#endif
}

TEST_CASE("an eager step that waits for its data is bound by the program", "[watch]") {
  const measure::Watch watch;
  const Tensor x = rand({8, 16});
  train_eagerly(60, [&] {
    wait_for_batch();
    return x;
  });
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].outside_share() > 0.7);
  REQUIRE_FALSE(steps[0].code.empty());
  CHECK(steps[0].code[0].waits);
  CHECK_FALSE(steps[0].code[0].calls_brrr);
  CHECK_THAT(measure::to_text(steps), Contains("bound by your own code") && Contains("look at ") &&
                                          Contains("wait_for_batch"));
}

TEST_CASE("updates within compiled steps, and after their replays, end no eager step", "[watch]") {
  const measure::Watch watch;
  nn::Linear model(16, 4);
  optim::Optimizer optimizer(model, optim::sgd(0.01));
  const Tensor x = rand({8, 16});
  auto whole = compile([&](const Tensor& batch) { return train_once(model, optimizer, batch); },
                       {.name = "whole"});
  auto gradients = compile(
      [&](const Tensor& batch) {
        const Tensor loss = mean(square(model(batch)));
        optimizer.zero_grad();
        backward(loss);
        return loss;
      },
      {.name = "gradients"});
  for (int i = 0; i < 40; ++i) {
    whole(x);
    gradients(x);
    optimizer.step();
  }
  const std::vector<WatchedStep> steps = watch.steps();
  CHECK(steps.size() == 2);
  CHECK((step_of(steps, "whole") && step_of(steps, "gradients")));
}

TEST_CASE("code is not sampled where SIGPROF is the program's own", "[watch]") {
  struct sigaction own = {}, before = {}, after = {};
  own.sa_handler = SIG_IGN;
  ::sigaction(SIGPROF, &own, &before);
  {
    const measure::ThreadSampler sampler;
    CHECK(sampler.problem() == "SIGPROF is in use");
    CHECK(sampler.samples().samples.empty());
  }
  ::sigaction(SIGPROF, &before, &after);
  CHECK(after.sa_handler == SIG_IGN);
}

TEST_CASE("calls that run eagerly, throw or are parts of others are no replays", "[watch]") {
  const measure::Watch watch;
  const Tensor a = rand({4}), b = rand({5});
  auto inner = compile([](const Tensor& x) { return x * 2.0; }, {.name = "inner"});
  auto outer = compile([&](const Tensor& x) { return inner(x) + 1.0; },
                       {.name = "outer", .most_entries = 1, .fallback = OnFallback::ignore});
  auto throws = compile([](const Tensor& x) { return x * item(x); }, {.name = "throws"});
  for (int i = 0; i < 5; ++i) {
    outer(a);
    outer(b);  // a second entry is not allowed
    CHECK_THROWS(throws(rand({1})));
  }
  for (int i = 0; i < 4; ++i) inner(a);  // by itself; within `outer` it is a part of that call
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE((step_of(steps, "outer") && step_of(steps, "inner")));
  CHECK(step_of(steps, "inner")->calls == 4);
  CHECK(step_of(steps, "inner")->eager_calls == 0);
  CHECK(step_of(steps, "outer")->calls == 5);
  CHECK(step_of(steps, "outer")->eager_calls == 5);
  CHECK_FALSE(step_of(steps, "throws"));
}

TEST_CASE("steps that end are reported apart from others at their address", "[watch]") {
  const measure::Watch watch;
  const Tensor a = rand({4});
  for (const char* const name : {"first", "second", "third"}) {
    auto step = compile([&] { return a + 1.0; }, {.name = name});
    for (int i = 0; i < 5; ++i) step();
  }
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 3);
  for (const char* const name : {"first", "second", "third"}) {
    REQUIRE(step_of(steps, name));
    CHECK(step_of(steps, name)->calls == 5);
  }
}

TEST_CASE("a step of few calls is reported without times", "[watch]") {
  const measure::Watch watch;
  const Tensor a = rand({4});
  auto twice = compile([&] { return a + 1.0; }, {.name = "twice"});
  for (int i = 0; i < 2; ++i) twice();
  CHECK(watch.steps().empty());
  twice();
  REQUIRE(watch.steps().size() == 1);
  CHECK(watch.steps()[0].calls == 3);
  CHECK_FALSE(watch.steps()[0].diagnosis);
  CHECK_THAT(measure::to_text(watch.steps()), Contains("called too seldom to judge"));
  CHECK_THAT(measure::to_text({}), Contains("no step was called often enough"));
}

TEST_CASE("the report of a watch is a valid document and a page", "[watch]") {
  const measure::Watch watch;
  nn::MLP model({16, 32, 4});
  optim::Optimizer optimizer(model, optim::adam(1e-3));
  const Tensor x = rand({8, 16}), y = rand({8, 4});
  auto step = compile(
      [&] {
        optimizer.zero_grad();
        backward(nn::mse_loss(model(x), y));
        optimizer.step();
      },
      {.name = "train <&>"});
  for (int i = 0; i < 50; ++i) step();
  const testing::JsonSchemas schemas(testing::source_path("docs/schemas"));
  const auto document =
      nlohmann::json::parse(measure::to_json(watch.steps(), measure::describe_machine()));
  CHECK(schemas.violation(document, "watch.json").value_or("") == "");
  CHECK(std::ranges::any_of(document["steps"][0]["kernels"],
                            [](const auto& kernel) { return kernel["module"] == "mlp.layers.1"; }));
  const std::string page = measure::to_html(
      measure::to_report(watch.steps(), measure::describe_machine(), "./train"), "");
  CHECK_THAT(page, Contains("train &lt;&amp;&gt;") && Contains("Kernels by predicted time"));
  const auto nothing = nlohmann::json::parse(measure::to_json({}, measure::describe_machine()));
  CHECK(schemas.violation(nothing, "watch.json").value_or("") == "");
}
