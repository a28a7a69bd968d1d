// Steps drawn at random, and what a sweep of them says.
#include <set>
#include <brrr/measure/sweep.h>
#include <brrr/measure/sweep_steps.h>

#include "tests/harness/catch.h"

using namespace brrr;
using namespace brrr::measure;

namespace {

constexpr double kManyFlops = 1e15;

std::string name_of_step(std::uint64_t seed, std::int64_t number, double most = kManyFlops) {
  return draw_step(seed, number, Device::cpu(), most).name;
}

// A step of microseconds by mode, the same in both rounds, and predictions of them.
SweptStep step_of(std::vector<double> times, std::vector<double> predicted) {
  SweptStep step;
  for (std::size_t i = 0; i < times.size(); ++i) {
    SweptMode& mode = step.modes.emplace_back();
    mode.mode = static_cast<Mode>(i);
    mode.rounds[0].median = mode.rounds[1].median = times[i] * 1e-6;
    mode.predicted = predicted[i] * 1e-6;
  }
  return step;
}

}  // namespace

TEST_CASE("sweep: a seed and a number name one step", "[sweep]") {
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) {
    names.insert(name_of_step(1, i));
    CHECK(name_of_step(1, i) == name_of_step(1, i));
    names.insert(name_of_step(2, i));
  }
  CHECK(names.size() == 200);
}

TEST_CASE("sweep: all kinds of models are drawn, of any size", "[sweep]") {
  std::set<std::string> kinds;
  int odd = 0, halves = 0;
  constexpr int kSteps = 400;
  for (int i = 0; i < kSteps; ++i) {
    const DrawnStep step = draw_step(3, i, Device::cpu(), kManyFlops);
    const std::size_t digit = step.name.find_first_of("0123456789");
    const std::string kind = step.name.substr(0, digit - 1);
    kinds.insert(kind);
    halves += step.dtype == bf16;
    if (kind != "mlp") continue;
    long batch = 0, width = 0;
    REQUIRE(std::sscanf(step.name.c_str() + digit, "%ld x %ld", &batch, &width) == 2);
    odd += width % 8 != 0;
  }
  CHECK(kinds == std::set<std::string>{"mlp", "transformer", "gated units", "gru", "experts",
                                       "convolution", "second derivative"});
  CHECK(odd > 20);
  CHECK((halves > kSteps / 5 && halves < kSteps / 2));
}

TEST_CASE("sweep: steps are halved until they have as few FLOPs as asked for", "[sweep]") {
  int smaller = 0;
  for (int i = 0; i < 50; ++i) smaller += name_of_step(1, i, 1e7) != name_of_step(1, i);
  CHECK(smaller > 25);
}

TEST_CASE("sweep: fused is behind graph by what noise does not explain", "[sweep]") {
  SweptStep step = step_of({100, 50, 60}, {100, 50, 60});
  CHECK(step.behind(2, 1) == Approx(0.2));
  CHECK(summarize({&step, 1}, Device::cpu()).behind.size() == 1);
  step.modes[2].rounds[1].median = 49e-6;  // in another round it is faster
  CHECK(step.behind(2, 1) < 0);
  CHECK(summarize({&step, 1}, Device::cpu()).behind.empty());
}

TEST_CASE("sweep: the summary has errors, orders, disagreements and failures", "[sweep]") {
  std::vector<SweptStep> steps;
  // Errors of graph: 0, 1 %, ..., 9 %; of fused one has half the time.
  for (int i = 0; i < 10; ++i) steps.push_back(step_of({100, 50, 40}, {100, 50 + i * 0.5, 40}));
  steps[3].modes[2].predicted = 80e-6;  // slower than graph: a wrong order
  steps[4].modes[1].agreement.broken_at = 2;
  steps.emplace_back().failure = "[mlp] expected memory";
  const SweepSummary summary = summarize(steps, Device::cpu());
  CHECK(summary.steps == 10);
  CHECK(summary.failed == std::vector<const SweptStep*>{&steps[10]});
  CHECK(summary.disagreeing == std::vector<const SweptStep*>{&steps[4]});
  CHECK(summary.behind.empty());
  CHECK(summary.gain == Approx(1.25));
  CHECK(summary.errors[0].worst == Approx(0).margin(1e-9));
  CHECK(summary.errors[1].median == Approx(0.04));
  CHECK(summary.errors[1].nine_in_ten == Approx(0.08));
  CHECK(summary.errors[1].worst == Approx(0.09));
  CHECK(summary.errors[2].worst == Approx(1));
  CHECK(summary.ordered == 30);
  CHECK(summary.right_order == 29);
}

TEST_CASE("sweep: drawn steps run in all modes and agree", "[sweep]") {
  SweepOptions options;
  options.device = Device::cpu();
  options.seed = 5;
  options.quick = true;
  options.count = 6;
  std::vector<std::string> shown;
  options.progress = [&](const std::string& name) { shown.push_back(name); };
  std::vector<SweptStep> steps;
  sweep(options, steps);
  REQUIRE(steps.size() == 6);
  CHECK(shown.size() == 6);
  for (const SweptStep& step : steps) {
    INFO(step.name << ": " << step.failure);
    REQUIRE(step.modes.size() == 3);
    CHECK(step.agrees());
    for (const SweptMode& mode : step.modes) {
      CHECK(mode.seconds() > 0);
      CHECK(mode.predicted > 0);
      CHECK(mode.kernels > 0);
    }
  }
  options.only = 4;
  std::vector<SweptStep> one;
  sweep(options, one);
  REQUIRE(one.size() == 1);
  CHECK(one[0].name == steps[4].name);
  const std::vector<Result> results = results_of(one, options.device);
  CHECK(results.front().name == "sweep/4 " + one[0].name + "/eager");
  CHECK(results.front().limit_name == "predicted");
}
