// Known complaints of users of graph capture, one test each.
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/compile_descent.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::optim;
using namespace brrr::test;

TEST_CASE("compile pain: a schedule advances in replays", "[compile]") {
  Descent descent(sgd(linear_schedule(4, 0, 4)));
  auto step = descent.step({.frozen_rate = OnFrozenRate::refuse});
  double expected = 0;
  for (const double rate : {4, 3, 2, 1, 0, 0}) {
    step();
    CHECK(item(select(descent.leaf, 0, 0)) == (expected -= rate));
  }
}

TEST_CASE("compile pain: an injected rate may be changed between replays", "[compile]") {
  Descent descent(
      inject_hyperparams({{"rate", 1.0}}, [](const auto& h) { return sgd(h["rate"]); }));
  auto step = descent.step();
  step();
  step();
  CHECK(item(select(descent.leaf, 0, 0)) == -2);
  fill_(descent.optimizer.hyperparameter("rate"), 0.5);
  step();
  CHECK(item(select(descent.leaf, 0, 0)) == -2.5);
  CHECK(step.report().entries.size() == 1);
}

TEST_CASE("compile pain: dropout drops others in each replay", "[compile]") {
  manual_seed(3);
  auto step = compile([](const Tensor& x) { return dropout(x, 0.5); });
  std::vector<std::string> seen;
  for (int call = 0; call < 8; ++call) {
    const std::string mask = bits_of(step(ones({64})));
    CHECK(std::ranges::find(seen, mask) == seen.end());
    seen.push_back(mask);
  }
}

TEST_CASE("compile pain: eager draws between replays draw what eager alone draws", "[compile]") {
  const auto draws = [](Mode mode) {
    manual_seed(5);
    auto two =
        compile([](const Tensor& x) { return dropout(x, 0.5) + rand({16}); }, {.mode = mode});
    auto stepping = compile(
        [](const Tensor& x) {
          const Tensor first = dropout(x, 0.5);
          next_random_step();
          return first + rand({16});
        },
        {.mode = mode});
    std::vector<std::string> all;
    const Tensor x = ones({16});
    for (int round = 0; round < 4; ++round) {
      all.push_back(bits_of(two(x)));
      all.push_back(bits_of(rand({4})));
      all.push_back(bits_of(randn({4})));
      all.push_back(bits_of(stepping(x)));
      all.push_back(bits_of(two(x)));
      if (round == 1) next_random_step();
      if (round == 2) manual_seed(6);
      all.push_back(bits_of(rand({4})));
    }
    return all;
  };
  CHECK(draws(Mode::graph) == draws(Mode::eager));
}

TEST_CASE("compile pain: a step that draws nothing may take the generator to its next step",
          "[compile]") {
  const auto draws = [](Mode mode) {
    manual_seed(5);
    const auto next = [](const Tensor& x) {
      next_random_step();
      return x + 1;
    };
    auto stepping = compile(next, {.mode = mode});
    auto drawing = compile([](const Tensor& x) { return dropout(x, 0.5); }, {.mode = mode});
    std::vector<std::string> all;
    const Tensor x = ones({16});
    for (int round = 0; round < 4; ++round) {
      all.push_back(bits_of(rand({4})));
      all.push_back(bits_of(stepping(x)));
      all.push_back(bits_of(rand({4})));
      all.push_back(bits_of(randn({4})));
      all.push_back(bits_of(drawing(x)));
      all.push_back(bits_of(stepping(x)));
      all.push_back(bits_of(drawing(x)));
      if (round == 2) stepping(x);
    }
    return all;
  };
  CHECK(draws(Mode::graph) == draws(Mode::eager));
}

TEST_CASE("compile pain: an eager step of the generator follows replays alone", "[compile]") {
  const auto draws = [](Mode mode) {
    manual_seed(5);
    auto step = compile([] { return rand({4}); }, {.mode = mode});
    std::vector<std::string> all;
    for (int round = 0; round < 3; ++round) {
      for (int call = 0; call < 3; ++call) all.push_back(bits_of(step()));
      next_random_step();
      all.push_back(bits_of(step()));
      manual_seed(5);
    }
    return all;
  };
  CHECK(draws(Mode::graph) == draws(Mode::eager));
}

TEST_CASE("compile pain: no later call writes over results or gradients", "[compile]") {
  const Tensor w = requires_grad_(noise({5}, 1));
  nn::MLP model({5, 6, 5});
  nn::Parameters parameters(model);
  auto step = compile([&](const Tensor& x) {
    zero_grad(w);
    parameters.zero_grad();
    const Tensor y = model(x * w);
    const Tensor loss = sum(square(y));
    backward(loss);
    return std::tuple(loss, y, select(y, 0, 1));
  });
  Tensors kept;
  std::vector<std::string> bits;
  for (int call = 0; call < 10; ++call) {
    const auto [loss, y, row] = step(noise({3, 5}, 10 + static_cast<unsigned>(call)));
    const Tensor first = grad(model.layers[0].weight);
    for (const Tensor& x : {loss, y, row, grad(w), parameters.gradients()[0], first}) {
      kept.push_back(x);
      bits.push_back(bits_of(x));
    }
  }
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(bits_of(kept[i]) == bits[i]);
  for (std::size_t i = 6; i < kept.size(); i += 6) CHECK(bits[i + 3] != bits[i - 3]);
}

TEST_CASE("compile pain: a view of a gradient is not written over either", "[compile]") {
  const Tensor w = requires_grad_(noise({4}, 1));
  auto step = compile([&](const Tensor& x) {
    zero_grad(w);
    backward(sum(square(w * x)));
  });
  Tensors kept;
  std::vector<std::string> bits;
  for (unsigned call = 0; call < 5; ++call) {
    step(noise({4}, call));
    kept.push_back(slice(grad(w), 0, 1, 3));
    bits.push_back(bits_of(kept.back()));
  }
  CHECK(bits_of(kept) == bits);
}

TEST_CASE("compile pain: gradients that nobody keeps have a fixed address", "[compile]") {
  const Tensor w = requires_grad_(noise({4}, 1));
  auto step = compile([&](const Tensor& x) {
    zero_grad(w);
    backward(sum(square(w * x)));
  });
  step(noise({4}, 2));
  const void* first = grad(w).data();
  for (int call = 0; call < 5; ++call) {
    step(noise({4}, 2));
    CHECK(grad(w).data() == first);
  }
  CHECK(step.report().entries[0].reason == "first call");
}

TEST_CASE("compile pain: memory does not grow over 10,000 calls of changing shapes", "[compile]") {
  const testing::Caching caching;
  const Tensor w = requires_grad_(noise({8}, 1));
  auto step = compile([&](const Tensor& x) {
    zero_grad(w);
    const Tensor loss = sum(tanh(x * w));
    backward(loss);
    return loss;
  });
  MemoryStats warm;
  for (int call = 0; call < 10'000; ++call) {
    if (call == 1000) warm = memory_stats(cpu);
    step(ones({1 + call % 20, 8}));
  }
  const MemoryStats after = memory_stats(cpu);
  CHECK(after.live <= warm.live + 64);
  CHECK(after.reserved <= warm.reserved);
  const CompileReport report = step.report();
  CHECK(report.entries.size() == 8);
  std::int64_t replayed = 0;
  for (const CompiledEntry& entry : report.entries) replayed += entry.calls;
  CHECK(replayed == 10'000 / 20 * 8);
  CHECK(report.eager_calls == 10'000 / 20 * 12);
  REQUIRE(report.eager_reasons.size() == 8);
  CHECK_THAT(report.eager_reasons[0], Catch::Contains("would be entry 9 of at most 8"));
  CHECK_THAT(step.explain(), Catch::Contains("step: 8 of at most 8 entries, 6000 eager calls"));
}

TEST_CASE("compile pain: where a graph is required, a fallback says why", "[compile]") {
  auto step = compile([](const Tensor& x) { return x + 1; },
                      {.name = "strict", .most_entries = 2, .fallback = OnFallback::refuse});
  step(ones({1}));
  step(ones({2}));
  CHECK(error_of([&] { step(ones({3})); }) ==
        "[strict] expected a step that can be replayed: (f32[3]) would be entry 3 of at most 2; "
        "fewer shapes, or a larger most_entries, would avoid that");
  CHECK(bits_of(step(ones({2}))) == bits_of(full({2}, 2)));
  step.clear();
  CHECK(bits_of(step(ones({3}))) == bits_of(full({3}, 2)));

  const Stream queue(cpu);
  const StreamGuard guard(queue);
  CHECK(error_of([&] { step(ones({3})); }) ==
        "[strict] expected a step that can be replayed: the current stream of the CPU is a queue");
}

TEST_CASE("compile pain: on a CPU queue a step is called eagerly", "[compile]") {
  auto step = compile([](const Tensor& x) { return x * 2; });
  const Stream queue(cpu);
  const StreamGuard guard(queue);
  for (int call = 0; call < 3; ++call) CHECK(to_vector<float>(step(ones({2})))[1] == 2);
  CHECK(step.report().eager_calls == 3);
}

namespace {

// A leaf and a step that adds to its gradient.
template <class F>
void accumulate(Mode mode, F&& then) {
  const Tensor w = requires_grad_(noise({6}, 1));
  auto step = compile(
      [&](const Tensor& x) {
        const Tensor loss = sum(square(w * x));
        backward(loss);
        return loss;
      },
      {.mode = mode});
  then(w, step);
}

}  // namespace

TEST_CASE("compile pain: gradients add up over replays", "[compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    accumulate(mode, [&](const Tensor& w, auto& step) {
      auto& all = bits[mode == Mode::graph];
      unsigned seed = 1;
      for (int round = 0; round < 3; ++round) {
        for (int call = 0; call < 3; ++call) {
          all.push_back(bits_of(step(noise({6}, seed++))));
          all.push_back(bits_of(grad(w)));
        }
        zero_grad(w);
        CHECK_FALSE(grad(w).defined());
      }
    });
  }
  CHECK(bits[1] == bits[0]);
}

TEST_CASE("compile pain: gradients add up over replays and eager backwards", "[compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    accumulate(mode, [&](const Tensor& w, auto& step) {
      auto& all = bits[mode == Mode::graph];
      unsigned seed = 1;
      Optimizer optimizer({w}, sgd(0.1));
      for (int round = 0; round < 4; ++round) {
        step(noise({6}, seed++));
        all.push_back(bits_of(grad(w)));
        backward(sum(w * noise({6}, seed++)));
        step(noise({6}, seed++));
        all.push_back(bits_of(grad(w)));
        optimizer.step();
        optimizer.zero_grad();
        all.push_back(bits_of(w));
      }
    });
  }
  CHECK(bits[1] == bits[0]);
}

TEST_CASE("compile pain: flat gradients add up over replays", "[compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    manual_seed(2);
    nn::MLP model({3, 4, 2});
    nn::Parameters parameters(model);
    Optimizer optimizer(parameters, adam(0.1));
    auto micro = compile(
        [&](const Tensor& x) {
          const Tensor loss = mean(square(model(x)));
          backward(loss);
          return loss;
        },
        {.mode = mode});
    auto update =
        compile([&] { optimizer.step(); }, {.mode = mode, .frozen_rate = OnFrozenRate::ignore});
    unsigned seed = 1;
    for (int round = 0; round < 4; ++round) {
      for (int call = 0; call < 3; ++call) {
        bits[mode == Mode::graph].push_back(bits_of(micro(noise({5, 3}, seed++))));
      }
      update();
      bits[mode == Mode::graph].push_back(bits_of(parameters.gradients()[0]));
      bits[mode == Mode::graph].push_back(bits_of(parameters.values()[0]));
      parameters.zero_grad();
    }
  }
  CHECK(bits[1] == bits[0]);
}

TEST_CASE("compile pain: host values that became constants are listed", "[compile]") {
  double factor = 0.5;
  auto step = compile([&](const Tensor& x) {
    const std::vector<float> values = {1, 2, 3};
    return clamp(x * factor + tensor(values, {3}), -1, 4);
  });
  step(ones({3}));
  factor = 100;  // too late
  CHECK(bits_of(step(ones({3}))) == bits_of(clamp(tensor({1.5, 2.5, 3.5}), -1, 4)));
  const std::string text = step.explain();
  CHECK_THAT(text, Catch::Contains("the same in every replay:"));
  CHECK_THAT(text, Catch::Contains("operand 1 of mul is 0.5 (at "));
  CHECK_THAT(text, Catch::Contains("operand 2 of clamp is 4 (at "));
  CHECK_THAT(text, Catch::Contains("tensor f32[3]: its values are those of the trace (at "));
  CHECK_THAT(text, Catch::Contains("test_pains.cpp:"));
}

TEST_CASE("compile pain: settings of the thread are part of the signature", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 1));
  auto step = compile([&](const Tensor& x) {
    if (grad_enabled()) {
      zero_grad(w);
      backward(sum(w * x));
    }
    return w * x;
  });
  const Tensor x = noise({3}, 2);
  step(x);
  CHECK(bits_of(grad(w)) == bits_of(x));
  zero_grad(w);
  {
    const NoGrad constant;
    for (int call = 0; call < 2; ++call) step(x);
    CHECK_FALSE(grad(w).defined());
  }
  step(x);
  CHECK(bits_of(grad(w)) == bits_of(x));
  REQUIRE(step.report().entries.size() == 2);
  CHECK(step.report().entries[1].reason == "no gradients are recorded");
}
