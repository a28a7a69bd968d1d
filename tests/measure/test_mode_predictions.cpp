// What a watch predicts for the modes that a program did not use.
#include "brrr/measure/mode_predictions.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "brrr/measure/replays.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;
using Catch::Contains;
using measure::PredictedMode;
using measure::WatchedStep;

namespace {

// Makes a step in a mode, with parameters of its own.
using MakeStep = std::function<std::function<void()>(Mode)>;

// Choices by times would differ from run to run.
CompileOptions options_of(Mode mode) { return {.mode = mode, .measure = false}; }

std::function<void()> mlp_training(Mode mode) {
  struct Net {
    nn::MLP model{{16, 64, 64, 4}};
    optim::Optimizer optimizer{model, optim::adam(1e-3)};
    Tensor x = rand({8, 16}), y = rand({8, 4});
  };
  auto net = std::make_shared<Net>();
  auto train = [net] {
    const Tensor loss = nn::mse_loss(net->model(net->x), net->y);
    net->optimizer.zero_grad();
    backward(loss);
    net->optimizer.step();
    return loss;
  };
  if (mode == Mode::eager) return [train] { train(); };
  return [step = std::make_shared<Compiled<Tensor()>>(compile(train, options_of(mode)))] {
    (*step)();
  };
}

std::function<void()> pointwise_chain(Mode mode) {
  auto chain = [x = rand({1 << 19})] { return sqrt(tanh(x * 2.0 + 1.0) * x + 3.0); };
  if (mode == Mode::eager) return chain;
  return [step = std::make_shared<Compiled<Tensor()>>(compile(chain, options_of(mode)))] {
    (*step)();
  };
}

std::function<void()> dropout_and_views(Mode mode) {
  auto step = [x = rand({32, 64}), w = rand({64, 64})] {
    (void)exp(x);  // nothing reads it
    const Tensor half = narrow(matmul(x, transpose(w, 0, 1)), 1, 0, 32);
    return sum(softmax(dropout(half, 0.5), 1));
  };
  if (mode == Mode::eager) return step;
  return
      [made = std::make_shared<Compiled<Tensor()>>(compile(step, options_of(mode)))] { (*made)(); };
}

const std::vector<MakeStep> kSteps = {mlp_training, pointwise_chain, dropout_and_views};

// The prediction that a compiled step of this mode reports.
core::StepTime reported(const MakeStep& make, Mode mode) {
  const std::function<void()> step = make(mode);
  step();
  const auto replayed = measure::replays_in(step);
  REQUIRE(replayed.size() == 1);
  return replayed[0].report().predicted;
}

WatchedStep watched(const MakeStep& make, Mode mode) {
  const measure::Watch watch;
  const std::function<void()> step = make(mode);
  for (int i = 0; i < 40; ++i) step();
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() == 1);
  return steps[0];
}

const PredictedMode& in_mode(const WatchedStep& step, Mode mode) {
  const auto at = std::ranges::find(step.others, mode, &PredictedMode::mode);
  REQUIRE(at != step.others.end());
  return *at;
}

}  // namespace

TEST_CASE("a mode is predicted as a step that is compiled in it predicts itself", "[watch]") {
  for (const MakeStep& make : kSteps) {
    for (const Mode mode : {Mode::graph, Mode::fused}) {
      const Mode other = mode == Mode::graph ? Mode::fused : Mode::graph;
      const WatchedStep step = watched(make, mode);
      REQUIRE(step.others.size() == 2);
      const PredictedMode& predicted = in_mode(step, other);
      REQUIRE(predicted.predicted);
      const core::StepTime own = reported(make, other);
      CHECK(predicted.predicted->overhead_ps == own.overhead_ps);
      CHECK(predicted.predicted->bandwidth_ps == own.bandwidth_ps);
      CHECK(predicted.predicted->compute_ps == own.compute_ps);
      REQUIRE(in_mode(step, Mode::eager).predicted);
    }
  }
}

namespace {

class Traced final : public core::ReplayListener {
 public:
  void called(core::CompiledStep&) override {}
  void returned(core::CompiledStep&, int) override {}
  void traced(core::CompiledStep&, const graph::Graph& calls,
              const CompileOptions& options) override {
    step.emplace(calls, options);
  }
  std::optional<measure::TracedStep> step;
};

}  // namespace

TEST_CASE("a trace has the calls that the host makes eagerly", "[watch]") {
  for (const MakeStep& make : kSteps) {
    Traced traced;
    {
      const measure::ListeningToReplays listening(traced);
      make(Mode::graph)();
    }
    REQUIRE(traced.step);
    const std::function<void()> eager = make(Mode::eager);
    for (int i = 0; i < 2; ++i) eager();
    const measure::EagerCalls counted = measure::cost_of_step(Device::cpu(), eager).eager;
    const measure::EagerCalls calls = traced.step->eager_calls();
    CHECK(calls.kernels == counted.kernels);
    CHECK(calls.products == counted.products);
    CHECK(calls.views == counted.views);
    CHECK(calls.recorded == counted.recorded);
  }
}

TEST_CASE("predictions change nothing that a step computes", "[watch]") {
  std::vector<std::vector<double>> losses;
  for (const bool predicts : {false, true}) {
    manual_seed(3);
    const measure::Watch watch;
    nn::MLP model({16, 32, 4});
    optim::Optimizer optimizer(model, optim::adam(1e-2));
    const Tensor x = rand({8, 16});
    auto step = compile([&] {
      const Tensor loss = mean(square(dropout(model(x), 0.3)));
      backward(loss);  // adds to the gradients, whose memory the step owns
      optimizer.step();
      return loss;
    });
    std::vector<double>& of_run = losses.emplace_back();
    for (int i = 0; i < 12; ++i) {
      of_run.push_back(item(step()));
      if (predicts && i % 4 == 3) CHECK(watch.steps().at(0).others.size() == 2);
    }
  }
  CHECK(losses[0] == losses[1]);
}

TEST_CASE("an eager step is predicted in graph mode, from its calls", "[watch]") {
  const WatchedStep step = watched(mlp_training, Mode::eager);
  REQUIRE(step.others.size() == 2);
  const PredictedMode& graph = in_mode(step, Mode::graph);
  REQUIRE(graph.predicted);
  // Passes remove a few calls.
  CHECK(graph.predicted->seconds() ==
        Approx(reported(mlp_training, Mode::graph).seconds()).epsilon(0.2));
  CHECK(graph.predicted->ps() < step.predicted.ps());
  CHECK_FALSE(in_mode(step, Mode::fused).predicted);
  CHECK_THAT(in_mode(step, Mode::fused).why_not, Contains("once the step is compiled"));
  CHECK_THAT(measure::to_text({step}), Contains("\ngraph   ") && Contains(" predicted") &&
                                           Contains("\nfused            not predicted: which"));
}

TEST_CASE("what is not predicted has its reason", "[watch]") {
  const Tensor x = requires_grad_(rand({8, 8}));
  auto early = compile([&] { return sum(tanh(x)); }, {.name = "early"});
  early();
  const measure::Watch watch;
  auto recomputes =
      compile([&] { backward(sum(tanh(tanh(x)))); }, {.remat = Remat::full(), .name = "full"});
  for (int i = 0; i < 4; ++i) {
    early();
    recomputes();
  }
  const std::vector<WatchedStep> steps = watch.steps();
  REQUIRE(steps.size() >= 2);
  for (const WatchedStep& step : steps) {
    const PredictedMode& fused = in_mode(step, Mode::fused);
    CHECK_FALSE(fused.predicted);
    CHECK_FALSE(step.gain_of(fused));
    CHECK_THAT(fused.why_not,
               Contains(step.name == "early" ? "its trace was not seen" : "its policy recomputes"));
  }
}

TEST_CASE("no mode is said to save time of the program's own code", "[watch]") {
  const auto times = [](double us) {
    return core::StepTime{.overhead_ps = static_cast<std::int64_t>(us * 1e6)};
  };
  WatchedStep step;
  step.entry.emplace();
  step.predicted = times(40);
  step.period.median = 100e-6;
  step.in_call.median = 40e-6;
  step.outside.median = 60e-6;
  const auto gain = [&](double us) {
    return step.gain_of({.mode = Mode::fused, .predicted = times(us)}).value();
  };
  CHECK(gain(20) == Approx(100. / 80));
  CHECK(gain(0.001) == Approx(100. / 60).epsilon(1e-3));
  CHECK(gain(40) == 1);
  CHECK(gain(80) == 1);
  step.predicted = times(20);  // what the call takes beyond its prediction stays
  CHECK(gain(10) == Approx(80. / 70));
}
