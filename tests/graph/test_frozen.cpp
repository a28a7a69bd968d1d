// Which numbers of the host a compiled step reports as frozen, and which it does not.
#include "tests/harness/captured_stderr.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/compile_descent.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::optim;
using namespace brrr::test;

TEST_CASE("compile: a rate that was frozen is reported", "[compile]") {
  const auto text = [](OnFrozenRate what) {
    Tensor leaf = requires_grad_(zeros({4}));
    auto step = compile(
        [&] {
          zero_grad(leaf);
          backward(sum(leaf));
          const NoGrad constant;
          sub_(leaf, grad_of(leaf) * 0.25);
        },
        {.name = "frozen", .frozen_rate = what});
    return stderr_of([&] {
      step();
      step();
    });
  };
  const std::string warning = text(OnFrozenRate::warn);
  CHECK_THAT(warning, Catch::StartsWith("[frozen] numbers of the host update parameters and will "
                                        "be the same in every replay"));
  CHECK_THAT(warning, Catch::Contains("0.25, in an update of parameters (at "));
  CHECK_THAT(warning, Catch::Contains("test_frozen.cpp:"));
  CHECK(text(OnFrozenRate::ignore) == "");
}

TEST_CASE("compile: a rate that is an argument is not reported", "[compile]") {
  const auto text = [](double rate, auto&& update) {
    const Tensor leaf = requires_grad_(zeros({4}));
    auto step = compile(
        [&](const Tensor& x, double given) {
          zero_grad(leaf);
          backward(sum(leaf * x));
          const NoGrad constant;
          update(leaf, grad_of(leaf), given);
        },
        {.name = "frozen"});
    return stderr_of([&] {
      step(ones({4}), rate);
      step(ones({4}), rate / 2);  // of an entry of its own
    });
  };
  CHECK(text(0.1, [](Tensor x, const Tensor& g, double rate) { sub_(x, g * rate); }) == "");
  CHECK(text(0.1, [](Tensor x, const Tensor& g, double rate) { add_(x, g * -rate); }) == "");
  CHECK(text(0.1, [](Tensor x, const Tensor& g, double rate) {
          sub_(x, g * static_cast<float>(rate));
        }) == "");
  // Another number is frozen beside it.
  CHECK_THAT(text(0.1, [](Tensor x, const Tensor& g, double) { sub_(x, g * 0.25); }),
             Catch::Contains("0.25, in an update of parameters"));
  CHECK_THAT(text(3, [](Tensor x, const Tensor& g, double rate) { sub_(x, g * (rate * 2)); }),
             Catch::Contains("6, in an update of parameters"));
}

TEST_CASE("compile: a rate in an update by hand is reported", "[compile]") {
  // By hand, in whatever way the rate gets there.
  const Tensor leaf = requires_grad_(zeros({4}));
  using Update = std::function<void(Tensor&, const Tensor&)>;
  const std::vector<std::pair<const char*, Update>> by_hand = {
      {"operand 1 of mul is 0.25", [](Tensor& p, const Tensor& g) { sub_(p, g * 0.25); }},
      {"operand 1 of div is 4", [](Tensor& p, const Tensor& g) { sub_(p, g / 4); }},
      {"operand 1 of mul is 0.25", [](Tensor& p, const Tensor& g) { add_(p, -(g * 0.25)); }},
      {"operand 1 of mul is 0.25", [](Tensor& p, const Tensor& g) { copy_(p, p - g * 0.25); }},
      {"operand 1 of mul is 0.25",
       [](Tensor& p, const Tensor& g) { sub_(p, g * 0.25 / (sqrt(square(g)) + 1e-3)); }},
      {"operand 1 of mul is 0.25",
       [](Tensor& p, const Tensor& g) { sub_(p, g / (sqrt(square(g)) + 1e-3) * 0.25); }},
  };
  for (const auto& [what, update] : by_hand) {
    const auto step = [&, &update = update](const Tensor& rate) {
      return compile(
          [&, rate] {
            zero_grad(leaf);
            backward(sum(square(leaf) * 3));
            const NoGrad constant;
            Tensor parameter = leaf;
            rate.defined() ? void(sub_(parameter, grad(leaf) / (square(grad(leaf)) + 2) * rate))
                           : update(parameter, grad(leaf));
          },
          {.name = "frozen", .frozen_rate = OnFrozenRate::refuse});
    };
    const std::string text = error_of(step({}));
    CHECK_THAT(text, Catch::Contains(what));
    CHECK(std::ranges::count(text, '\n') == 2);  // of that number alone
    CHECK(error_of(step(full({}, 0.25))) == "");
  }
}

TEST_CASE("compile: rates of gradients by name are reported, limits are none", "[compile]") {
  const Tensor leaf = requires_grad_(zeros({4}));
  // Gradients by name, and limits, which are no rates.
  {
    auto by_name = compile(
        [&] {
          const Tensor gradient = grad(sum(square(leaf)), leaf);
          const NoGrad constant;
          Tensor parameter = leaf;
          sub_(parameter, gradient * 0.25);
        },
        {.frozen_rate = OnFrozenRate::refuse});
    CHECK_THAT(error_of(by_name), Catch::Contains("operand 1 of mul is 0.25"));
    auto limited = compile(
        [&](const Tensor& rate) {
          zero_grad(leaf);
          backward(sum(square(leaf)));
          const NoGrad constant;
          Tensor parameter = leaf;
          sub_(parameter, grad(leaf) * rate);
          clamp_(parameter, -0.5, 0.5);
        },
        {.frozen_rate = OnFrozenRate::refuse});
    CHECK(error_of([&] { limited(full({}, 0.25)); }) == "");
  }

  Tensor untouched = requires_grad_(zeros({4}));
  auto step = compile(
      [&] {
        backward(sum(untouched));
        const NoGrad constant;
        sub_(untouched, grad_of(untouched) * 0.25);
      },
      {.name = "frozen", .frozen_rate = OnFrozenRate::refuse});
  CHECK_THAT(error_of(step), Catch::StartsWith("[frozen] numbers of the host update parameters"));
  CHECK(step.report().entries.empty());
  CHECK(bits_of(untouched) == bits_of(zeros({4})));
  CHECK_FALSE(grad_of(untouched).defined());
}

TEST_CASE("compile: constants given to an optimizer are not reported", "[compile]") {
  const Transformation by_hand([](std::vector<Tensor> updates, State&, std::span<const Tensor>) {
    for (Tensor& update : updates) update = update * -0.125;
    return updates;
  });
  const auto with_decay = [](const auto& h) { return adamw(h["rate"], 0.1); };
  const std::vector<std::pair<const char*, Transformation>> constant = {
      {"sgd", sgd(0.25)},
      {"momentum", sgd(0.25, {.momentum = 0.9, .nesterov = true})},
      {"adam", adam(1e-3)},
      {"adamw", adamw(1e-3, 0.1)},
      {"lion", lion(1e-3)},
      {"scale", chain(scale_by_adam(), scale(-0.1))},
      {"decay", chain(add_decayed_weights(0.1), sgd(0.5))},
      {"clipped", chain(clip_by_global_norm(1.0), clip(0.5), adam(1e-3))},
      {"masters", master_weights(sgd(0.25))},
      {"injected", inject_hyperparams({{"rate", 1e-3}}, with_decay)},
      {"by hand", by_hand},
      {"by hand, at the end of a chain", chain(ema(0.5), by_hand)},
  };
  for (const auto& [name, transformation] : constant) {
    INFO(name);
    Descent descent(transformation);
    auto step = descent.step();
    CHECK(stderr_of([&] {
            step();
            step();
          }) == "");
    CHECK_THAT(step.explain(), Catch::Contains(", an intended constant (at "));
    CHECK_THAT(step.explain(), !Catch::Contains("in an update of parameters"));
    auto refusing = descent.step({.frozen_rate = OnFrozenRate::refuse});
    CHECK(error_of(refusing) == "");
  }
}

TEST_CASE("compile: constants of transformations without an optimizer are not reported",
          "[compile]") {
  // Without an Optimizer, and in a step of its own.
  const Tensor leaf = requires_grad_(zeros({4}));
  const Transformation whole = adam(1e-3), parts = chain(scale_by_adam(), scale(-0.1));
  std::vector<Tensor> leaves = {leaf};
  State of_whole = whole.init(leaves), of_parts = parts.init(leaves);
  backward(sum(leaf));
  auto update = compile(
      [&] {
        whole.apply({grad_of(leaf)}, of_whole, leaves);
        apply_updates(leaves, parts.update({grad_of(leaf)}, of_parts, leaves));
      },
      {.frozen_rate = OnFrozenRate::refuse});
  CHECK(error_of(update) == "");

  // A scalar parameter: zeros in place of its gradient are no rate.
  Tensor scalar = requires_grad_(zeros({}));
  Optimizer optimizer({scalar, leaf}, sgd(0.25));
  set_grad(scalar, ones({}));
  auto clearing = compile(
      [&] {
        backward(sum(leaf));
        Tensor gradient = grad_of(scalar);
        fill_(gradient, 0.5);
        optimizer.step();
      },
      {.frozen_rate = OnFrozenRate::refuse});
  CHECK(error_of(clearing) == "");
}

TEST_CASE("compile: a number that the step hands to an optimizer is reported", "[compile]") {
  const auto injected = inject_hyperparams(
      {{"rate", 1.0}}, [](const auto& h) { return chain(clip(2), sgd(h["rate"])); });
  double rate = 0.25;
  using HandIn = std::function<void(Optimizer&)>;
  const std::pair<const char*, HandIn> ways[] = {
      {"filled", [&](Optimizer& o) { fill_(o.hyperparameter("rate"), rate); }},
      {"copied", [&](Optimizer& o) { copy_(o.hyperparameter("rate"), full({}, rate)); }},
      {"filled afterwards",
       [&](Optimizer& o) {
         o.step();
         fill_(o.hyperparameter("rate"), rate);
       }},
  };
  for (const auto& [name, hand_in] : ways) {
    INFO(name);
    Descent descent(injected);
    auto step = compile(
        [&, &hand_in = hand_in] {
          descent.optimizer.zero_grad();
          backward(sum(descent.leaf));
          hand_in(descent.optimizer);
          descent.optimizer.step();
        },
        {.frozen_rate = OnFrozenRate::refuse});
    const std::string text = error_of(step);
    CHECK_THAT(text, Catch::Contains("value of full is 0.25, in an update of parameters (at "));
    CHECK(std::ranges::count(text, '\n') == 2);  // of that number alone
  }

  // An optimizer that the step makes anew has the step's numbers.
  std::vector<Tensor> leaves = {requires_grad_(zeros({4}))};
  backward(sum(leaves[0]));
  auto anew = compile(
      [&] {
        const Transformation now = sgd(rate);
        State state = now.init(leaves);
        now.apply({grad_of(leaves[0])}, state, leaves);
      },
      {.frozen_rate = OnFrozenRate::refuse});
  CHECK_THAT(error_of(anew), Catch::Contains("is -0.25, in an update of parameters (at "));

  // What replays advance on the device is no number of the host.
  Descent descent(injected);
  auto decaying = compile(
      [&] {
        descent.optimizer.zero_grad();
        backward(sum(descent.leaf));
        mul_(descent.optimizer.hyperparameter("rate"), 0.5);
        descent.optimizer.step();
      },
      {.frozen_rate = OnFrozenRate::refuse});
  for (const double expected : {-0.5, -0.75, -0.875}) {
    decaying();
    CHECK(item(select(descent.leaf, 0, 0)) == expected);
  }
}

TEST_CASE("compile: rates that live on the device are not reported as frozen", "[compile]") {
  const auto by_rate = [](const auto& h) { return adamw(h["rate"], h["decay"]); };
  const std::vector<std::pair<const char*, Transformation>> alive = {
      {"sgd", sgd(linear_schedule(1, 0, 4))},
      {"momentum", sgd(linear_schedule(1, 0, 4), {.momentum = 0.9})},
      {"adam", adam(linear_schedule(1, 0, 4))},
      {"lion", lion(linear_schedule(1, 0, 4), {.weight_decay = 0})},
      {"clipped", chain(clip_by_global_norm(1), adam(linear_schedule(1, 0, 4)))},
      {"injected", inject_hyperparams({{"rate", 1e-3}, {"decay", 0.1}}, by_rate)},
  };
  for (const auto& [name, transformation] : alive) {
    INFO(name);
    Descent descent(transformation);
    auto step = descent.step({.frozen_rate = OnFrozenRate::refuse});
    CHECK(error_of(step) == "");
  }
}
