// Comparisons of steps, and the agreement of their losses.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/measure/compare.h"
#include "brrr/measure/compare_report.h"
#include "brrr/measure/compare_text.h"
#include "brrr/measure/verdict_text.h"
#include "brrr/nn/losses.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_pool.h"
#include "tests/harness/catch.h"

using brrr::measure::agreement_of;
using brrr::measure::first_difference;

TEST_CASE("losses agree when all their bits do", "[compare]") {
  const std::vector<double> losses = {1, 0.5, 0.25};
  CHECK_FALSE(first_difference(losses, losses));
  CHECK_FALSE(first_difference({}, {}));
  CHECK(first_difference(losses, std::vector<double>{1, 0.5, 0.25000000000000006}) == 2);
  CHECK(first_difference(losses, std::vector<double>{1, 0.5}) == 2);
  CHECK(first_difference(std::vector<double>{1}, losses) == 1);
  CHECK(first_difference(std::vector<double>{0.0}, std::vector<double>{-0.0}) == 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(first_difference(std::vector<double>{nan}, std::vector<double>{nan}));
}

TEST_CASE("losses of fused steps may differ by a bound where sums have another order",
          "[compare]") {
  const std::vector<double> eager = {4, 2, 1};
  const auto near = agreement_of(eager, std::vector<double>{4, 2.001, 1}, 1e-3);
  CHECK_FALSE(near.broken_at);
  CHECK(near.largest == Approx(0.001 / 4));
  CHECK_FALSE(near.is_of_bits());
  // The same losses are not the same bits, and a larger difference is one.
  CHECK(agreement_of(eager, std::vector<double>{4, 2.001, 1}, 0).broken_at == 1);
  CHECK(agreement_of(eager, std::vector<double>{4, 2, 1.005}, 1e-3).broken_at == 2);
  CHECK_FALSE(agreement_of(eager, eager, 0).broken_at);
  CHECK(agreement_of(eager, eager, 0).is_of_bits());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(agreement_of(eager, std::vector<double>{4, nan, 1}, 1e-3).broken_at == 1);
  CHECK(agreement_of(eager, std::vector<double>{4, 2}, 1e-3).broken_at == 2);
  CHECK_FALSE(agreement_of({}, {}, 1e-3).broken_at);
}

TEST_CASE("steps are timed for as long as --time says", "[compare]") {
  for (const double seconds : {0.001, 0.5, 2.0, 3600.0}) {
    const brrr::measure::Sampling sampling = brrr::measure::sampling_for(seconds);
    CHECK(sampling.budget_seconds == seconds);
    CHECK(sampling.samples * sampling.sample_seconds >= 0.99 * seconds);
  }
}

TEST_CASE("only fused steps on CUDA have a bound", "[compare]") {
  using namespace brrr;
  for (const Mode mode : {Mode::eager, Mode::graph, Mode::fused}) {
    for (const Device device : {cpu, cuda()}) {
      CHECK((measure::loss_bound(device, f32, mode, Rounding::eager) > 0) ==
            (mode == Mode::fused && device.is_cuda()));
    }
  }
}

// --- A user's step ---

namespace {

using namespace brrr;
using Catch::Contains;

// A model that no command of the program has: two towers whose outputs are multiplied.
class Towers {
 public:
  explicit Towers(std::int64_t rows, double rate = 1e-2)
      : left_({6, 16, 4}),
        right_({6, 16, 4}),
        left_steps_(left_, optim::sgd(rate)),
        right_steps_(right_, optim::sgd(rate)),
        x_(rand({rows, 6})),
        y_(rand({rows, 4})) {}
  Tensor train() {
    left_steps_.zero_grad();
    right_steps_.zero_grad();
    const Tensor loss = nn::mse_loss(left_(x_) * right_(x_), y_);
    backward(loss);
    left_steps_.step();
    right_steps_.step();
    return detach(loss);
  }

 private:
  nn::MLP left_, right_;
  optim::Optimizer left_steps_, right_steps_;
  Tensor x_, y_;
};

measure::MakeStep towers(std::int64_t rows) {
  return [rows](Mode mode, Remat remat) {
    const auto net = std::make_shared<Towers>(rows);
    return compile([net] { return net->train(); }, {.mode = mode, .remat = remat});
  };
}

const measure::CompareOptions kShort{.steps = 6, .seconds = 0.02};

}  // namespace

TEST_CASE("a step of one's own is compared in all modes", "[compare]") {
  measure::CompareOptions options = kShort;
  options.describes = "8 rows";
  options.facts = {{"rows", std::int64_t{8}}};
  options.doubled = towers(16);
  std::vector<std::string> shown;
  options.progress = [&](const std::string& what) { shown.push_back(what); };
  const measure::Comparison found = measure::compare("towers", towers(8), options);
  REQUIRE(found.sides.size() == 3);
  CHECK(found.device == Device::cpu());
  for (const Mode mode : {Mode::eager, Mode::graph, Mode::fused}) {
    const measure::Side& side = found.sides[static_cast<std::size_t>(mode)];
    CHECK(side.mode == mode);
    CHECK(side.name == measure::name_of(mode));
    CHECK(side.losses.size() == 6);
    CHECK(side.losses == found.sides.front().losses);
    CHECK(side.step->median > 0);
    CHECK(side.cost->predicted.ps() > 0);
    CHECK(side.compiled.has_value() == (mode != Mode::eager));
    CHECK(side.launches.empty() == (mode == Mode::eager));
    CHECK(side.doubling);
  }
  CHECK(found.status() == 0);
  CHECK(found.problem().empty());
  CHECK(shown.front() == "1 of 10: eager");
  const std::string all = std::to_string(shown.size());
  CHECK(shown.back() == all + " of " + all + ": recording fused");
  CHECK_THAT(measure::to_text(found),
             Contains("towers: 8 rows\n") && Contains("losses   agree over 6 steps bit for bit\n"));
  CHECK_THAT(measure::details_text(found),
             Contains("towers") && Contains("eager, graph, fused agree bit for bit"));
  const std::string json = measure::to_json(found, {});
  CHECK_THAT(json, Contains("\"model\": \"towers\"") && Contains("\"rows\": 8"));
  CHECK_THAT(measure::to_html(measure::compare_report(found, {}, "./towers"), "towers.json"),
             Contains("towers: 8 rows"));
}

TEST_CASE("policies of rematerialization of one's own step are compared", "[compare]") {
  measure::CompareOptions options = kShort;
  options.remat = Remat::full();
  const measure::Comparison found = measure::compare("towers", towers(64), options);
  REQUIRE(found.sides.size() == 3);
  CHECK(found.sides[0].name == "eager");
  CHECK(found.sides[2].name == "fused full");
  CHECK(found.sides[2].live);
  CHECK(found.status() == 0);
  options.all_policies = true;
  const measure::Comparison all = measure::compare("towers", towers(64), options);
  CHECK(all.sides.size() >= 7);
  CHECK(all.sides[2].name == "graph min_cut");
}

TEST_CASE("candidates of one's own are compared with the first one", "[compare]") {
  const auto with_rate = [](double rate) {
    return [rate]() -> measure::Step {
      const auto net = std::make_shared<Towers>(8, rate);
      return [net] { return net->train(); };
    };
  };
  measure::CompareOptions options = kShort;
  const measure::Comparison other =
      measure::compare("rates", {{"0.01", with_rate(0.01)}, {"0.1", with_rate(0.1)}}, options);
  CHECK(other.sides[1].name == "0.1");
  CHECK(other.status() == 1);
  CHECK_THAT(other.problem(), Contains("expected the losses of 0.01") && Contains("at step 1"));
  options.tolerance = 10;
  CHECK(measure::compare("rates", {{"0.01", with_rate(0.01)}, {"0.1", with_rate(0.1)}}, options)
            .status() == 0);
  // Steps without a loss are timed all the same.
  const Tensor a = rand({32, 32});
  const measure::Comparison silent =
      measure::compare("products",
                       {{"one", [&] { return measure::Step([&] { matmul(a, a); }); }},
                        {"two", [&] { return measure::Step([&] { matmul(a, matmul(a, a)); }); }}},
                       kShort);
  CHECK(silent.status() == 0);
  CHECK(silent.sides[0].losses.empty());
  CHECK(silent.sides[1].cost->flops == 2 * silent.sides[0].cost->flops);
  CHECK(measure::to_text(silent).find("losses") == std::string::npos);
}

TEST_CASE("changes of a step are tried, and those that help are said", "[compare][timing]") {
  // The step itself does eight products, its variations one and sixteen.
  const auto products = [](int count) -> measure::MakeStep {
    return [count](Mode mode, Remat) -> measure::Step {
      const Tensor a = rand({64, 64});
      return compile(
          [a, count] {
            Tensor x = a;
            for (int i = 0; i < count; ++i) x = matmul(x, a) * 0.01;
            return sum(x);
          },
          {.mode = mode});
    };
  };
  const int threads = num_threads();
  measure::CompareOptions options = kShort;
  options.check_doubled = false;
  options.doubled = products(4);
  int made = 0;
  options.variations = {
      {"fewer", products(1)},
      {"once", [&](Mode mode, Remat remat) { return products(made++ == 0 ? 1 : 16)(mode, remat); }},
      {"more", products(16)},
      {"broken", [](Mode, Remat) -> measure::Step { core::fail("no memory"); }}};
  const measure::Comparison found = measure::compare("products", products(8), options);
  CHECK(num_threads() == threads);
  REQUIRE(found.tried.size() >= 4);
  CHECK(found.tried.front().name == "fewer");
  CHECK(found.tried.front().helps());
  CHECK(found.tried.front().gain() > 2);
  CHECK(found.tried.back().name == "broken");
  CHECK(found.tried.back().failure == "no memory");
  const auto named = [&](const std::string& name) {
    return *std::ranges::find(found.tried, name, &measure::Tried::name);
  };
  CHECK_FALSE(named("more").helps());
  CHECK(made == 2);  // what helps is tried again
  CHECK_FALSE(named("once").helps());
  CHECK(named("twice the batch").work == 2);
  CHECK(named("twice the batch").helps());
  CHECK_FALSE(found.sides.front().doubling);
  CHECK_THAT(found.fastest().diagnosis.advice,
             Contains("fewer: ") && Contains("as measured") && !Contains("more: "));
  CHECK_THAT(measure::to_text(found), Contains("fewer: "));
  CHECK_THAT(measure::to_json(found, {}), Contains("\"failure\": \"no memory\""));
  options.tries = false;
  const measure::Comparison quick = measure::compare("products", products(8), options);
  CHECK(quick.tried.empty());
  CHECK_THAT(quick.fastest().diagnosis.advice, Contains("derived, not tried"));
}

TEST_CASE("a step that is slower for what is tried counts as it was before", "[compare]") {
  // Its calls take longer once the setting went back and forth.
  bool entered = false;
  const std::function<void()> step = [&] {
    const double end = measure::host_seconds() + (entered ? 4e-3 : 1e-3);
    while (measure::host_seconds() < end) {
    }
  };
  const measure::Variation variation{.name = "setting",
                                     .make = [step]() -> measure::Step {
                                       return [] {
                                         const double end = measure::host_seconds() + 2e-3;
                                         while (measure::host_seconds() < end) {
                                         }
                                       };
                                     },
                                     .enter = [&] { entered = true; }};
  const measure::Sampling sampling{.samples = 5, .sample_seconds = 1e-4, .budget_seconds = 0.1};
  const measure::Timing alone = measure::time(measure::host_batch(step), sampling);
  const measure::Tried tried = measure::try_variation(variation, cpu, step, alone, sampling);
  CHECK(tried.failure.empty());
  CHECK_FALSE(tried.helps());
  CHECK(tried.gain() < 0.8);
}

TEST_CASE("a comparison that is stopped has what was measured", "[compare]") {
  // Stopped at the k-th question, wherever that is.
  int asked = 0;
  measure::CompareOptions options = kShort;
  options.stop = [&] { return ++asked < 0; };
  measure::compare("towers", towers(8), options);
  const int questions = asked;
  REQUIRE(questions > 20);
  int without = 0;
  for (int at = 1; at < questions; at += std::max(1, questions / 12)) {
    asked = 0;
    options.stop = [&] { return ++asked >= at; };
    try {
      const measure::Comparison found = measure::compare("towers", towers(8), options);
      if (asked < at) continue;  // what is tried again differs from run to run
      CHECK_FALSE(found.interrupted.empty());
      CHECK_FALSE(found.sides.empty());
      for (const measure::Side& side : found.sides) CHECK(side.step->median > 0);
      CHECK_THAT(measure::to_text(found), Contains("stopped  " + found.interrupted));
      CHECK_THAT(measure::to_json(found, {}), Contains(found.interrupted));
    } catch (const Error& error) {
      ++without;
      CHECK_THAT(error.what(), Contains("interrupted") && Contains("before a step was measured"));
    }
  }
  CHECK(without >= 1);
  CHECK(without < 6);
}

TEST_CASE("a diverging step of one's own is reported", "[compare]") {
  const auto make = [](Mode mode, Remat) {
    const auto net = std::make_shared<Towers>(8, 1e30);
    return compile([net] { return net->train(); }, {.mode = mode});
  };
  const measure::Comparison found = measure::compare("towers", make, kShort);
  CHECK(found.status() == 1);
  CHECK_THAT(found.problem(), Contains("expected finite losses, got eager"));
}

TEST_CASE("compare refuses what is no step", "[compare]") {
  CHECK_THROWS_WITH(measure::compare("none", measure::MakeStep()),
                    "[compare] expected a function that makes a step, got none");
  CHECK_THROWS_WITH(measure::compare("none", std::vector<measure::Candidate>()),
                    "[compare] expected at least one candidate, got none");
  CHECK_THROWS_WITH(measure::compare("none", {{"empty", {}}}),
                    "[compare] expected a function that makes empty, got none");
  CHECK_THROWS_WITH(measure::compare(
                        "none", [](Mode, Remat) { return measure::Step(); }, kShort),
                    "[compare] expected a step for eager, got none");
  const Tensor a = rand({3});
  CHECK_THROWS_WITH(
      measure::compare(
          "vector", [&](Mode, Remat) { return measure::Step([&] { return relu(a); }); }, kShort),
      Contains("expected a step to return its loss, of one element, got f32[3]"));
}
