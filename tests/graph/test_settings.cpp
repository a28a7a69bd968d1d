// Guards of a compiled step: the modes of modules, replaced parameters, settings of the thread.
// Also reports of eager calls, and misuse.
#include <chrono>

#include "tests/harness/captured_stderr.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("compile: a step sees parameters that are packed after it was compiled", "[compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    manual_seed(4);
    nn::MLP model({3, 8, 2});
    auto step =
        compile([&](const Tensor& x) { return no_grad([&] { return model(x); }); }, {.mode = mode});
    const Tensor x = noise({5, 3}, 1);
    const auto call = [&] { bits[mode == Mode::graph].push_back(bits_of(step(x))); };
    for (int i = 0; i < 3; ++i) call();
    {
      nn::Parameters parameters(model);
      for (int i = 0; i < 2; ++i) {
        Tensor flat = parameters.values()[0];
        mul_(flat, 1.5);
        call();
      }
    }
    nn::Parameters again(model);  // packed once more, over other memory
    Tensor flat = again.values()[0];
    mul_(flat, 0.5);
    for (int i = 0; i < 3; ++i) call();
    if (mode == Mode::eager) continue;
    const CompileReport report = step.report();
    REQUIRE(report.entries.size() == 1);
    CHECK(report.entries[0].calls == 8);
    CHECK(report.entries[0].reason ==
          "first call; traced again 2 times, since parameters were packed or moved");
  }
  CHECK(bits[1] == bits[0]);
}

TEST_CASE("compile: the time of the first run is that of the first call", "[compile]") {
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    auto step = compile([](const Tensor& x) { return exp(x * 0.5) + x; }, {.mode = mode});
    const Tensor x = noise({512, 512}, 1);
    const auto before = std::chrono::steady_clock::now();
    step(x);
    const double call_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before)
            .count();
    const CompiledEntry first = step.report().entries.at(0);
    CHECK(first.first_run_ms > 0);
    CHECK(first.trace_ms + first.plan_ms + first.first_run_ms <= call_ms);
    step(x);
    CHECK(step.report().entries.at(0).first_run_ms == first.first_run_ms);
  }
}

TEST_CASE("compile: a training step continues after its parameters are packed", "[compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    manual_seed(4);
    nn::MLP model({3, 8, 2});
    auto step = compile(
        [&](const Tensor& x) {
          const Tensor loss = mean(square(model(x)));
          backward(loss);
          return detach(loss);
        },
        {.mode = mode});
    const Tensor x = noise({5, 3}, 1);
    for (int i = 0; i < 2; ++i) bits[mode == Mode::graph].push_back(bits_of(step(x)));
    nn::Parameters parameters(model);
    optim::Optimizer optimizer(parameters, optim::sgd(0.5));
    for (int i = 0; i < 3; ++i) {
      optimizer.zero_grad();
      bits[mode == Mode::graph].push_back(bits_of(step(x)));
      bits[mode == Mode::graph].push_back(bits_of(parameters.gradients()[0]));
      optimizer.step();
    }
  }
  CHECK(bits[1] == bits[0]);
}

TEST_CASE("compile: a step sees that its module moved", "[compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    manual_seed(4);
    nn::Linear model(3, 2);
    auto step = compile(
        [&](const Tensor& x) {
          return no_grad([&] { return model(cast(x, model.weight.dtype())); });
        },
        {.mode = mode});
    const Tensor x = noise({5, 3}, 1);
    for (const DType dtype : {f32, f64, f32}) {
      model.to(dtype);
      for (int i = 0; i < 2; ++i) bits[mode == Mode::graph].push_back(bits_of(step(x)));
    }
  }
  CHECK(bits[1] == bits[0]);
}

TEST_CASE("compile: a step that owns the old tensor continues to use it", "[compile]") {
  nn::Linear model(3, 2);
  const Tensor old = model.weight;
  auto step = compile([old](const Tensor& x) { return no_grad([&] { return linear(x, old); }); });
  const Tensor x = noise({5, 3}, 1);
  const std::string before = bits_of(step(x));
  nn::Parameters parameters(model);
  Tensor flat = parameters.values()[0];
  mul_(flat, 2);
  for (int i = 0; i < 3; ++i) CHECK(bits_of(step(x)) == before);
  const CompileReport report = step.report();
  REQUIRE(report.entries.size() == 1);
  CHECK(report.entries[0].reason ==
        "first call; traced again 1 time, since parameters were packed or moved");
}

TEST_CASE("compile: train and eval have separate entries", "[compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    manual_seed(4);
    nn::Sequential model;
    model.add<nn::Linear>(3, 16);
    model.add<nn::Dropout>(0.5);
    model.add<nn::TransformerBlock>(16, 2, Options{}, true, 0.25);
    auto step =
        compile([&](const Tensor& x) { return no_grad([&] { return model(x); }); }, {.mode = mode});
    const Tensor x = noise({2, 5, 3}, 1);
    for (int i = 0; i < 12; ++i) {
      model.train(i % 4 < 2);
      bits[mode == Mode::graph].push_back(bits_of(step(x)));
    }
    model[1].train(false);  // one module alone
    CHECK(model.training() == false);
    model[1].train(true);
    for (int i = 0; i < 2; ++i) bits[mode == Mode::graph].push_back(bits_of(step(x)));
    if (mode == Mode::eager) continue;
    const CompileReport report = step.report();
    REQUIRE(report.entries.size() == 3);
    CHECK(report.entries[0].calls == 6);
    CHECK(report.entries[1].calls == 6);
    CHECK(report.entries[1].reason == "sequential.1.training() is 0, and was 1");
    CHECK(report.eager_calls == 0);
    CHECK_THAT(step.explain(), Catch::Contains("while sequential.1.training() is 1"));
  }
  CHECK(bits[1] == bits[0]);
  CHECK(bits[0][2] == bits[0][3]);  // nothing is dropped
  CHECK(bits[0][0] != bits[0][1]);
}

TEST_CASE("compile: a mode that the function sets itself is no other step", "[compile]") {
  nn::Dropout drop(0.5);
  auto step = compile([&](const Tensor& x) {
    drop.eval();
    const Tensor y = drop(x);
    drop.train();
    return y;
  });
  const Tensor x = noise({64}, 1);
  for (int i = 0; i < 4; ++i) {
    drop.train(i % 2 == 0);
    CHECK(bits_of(step(x)) == bits_of(x));
  }
  CHECK(step.report().entries.size() == 1);
}

TEST_CASE("compile: a step may outlive the module whose mode it read", "[compile]") {
  auto drop = std::make_unique<nn::Dropout>(0.0);
  auto step = compile([&](const Tensor& x) { return (drop ? (*drop)(x) : x) * 2; });
  const Tensor x = noise({4}, 1);
  step(x);
  drop.reset();
  nn::Dropout(0.5).eval();  // counts as a change of settings
  CHECK(bits_of(step(x)) == bits_of(x * 2));
}

TEST_CASE("compile: settings of the thread are part of the signature", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 1));
  auto step = compile([&](const Tensor& x) { return detach(sum(w * x)); }, {.name = "settings"});
  const Tensor x = noise({3}, 2);
  step(x);
  {
    const NoGrad constant;
    step(x);
  }
  {
    const MatmulPrecisionGuard tf32(Precision::tf32);
    step(x);
  }
  const CompileReport report = step.report();
  REQUIRE(report.entries.size() == 3);
  CHECK(report.entries[1].reason == "no gradients are recorded");
  CHECK(report.entries[2].reason == "gradients are recorded");
  step(x);
  CHECK(step.report().entries.size() == 3);

  // A backward that is to look at its gradients is not replayed without looking.
  auto backwards = compile([&](const Tensor& y) { backward(sum(w * y)); }, {.name = "settings"});
  backwards(x);
  const DetectAnomaly looking;
  CHECK_THAT(error_of([&] { backwards(x); }),
             Catch::StartsWith("[item] cannot be part of the compiled function \"settings\": "));
}

TEST_CASE("compile: eager calls are reported once, with advice", "[compile]") {
  auto step = compile([](const Tensor& x, double rate) { return x * rate; },
                      {.name = "scaled", .most_entries = 3});
  const Tensor x = noise({4}, 1);
  CHECK(stderr_of([&] {
          for (int i = 0; i < 3; ++i) step(x, 0.1 * i);
        }) == "");
  const std::string reported = stderr_of([&] {
    for (int i = 3; i < 20; ++i) CHECK(bits_of(step(x, 0.1 * i)) == bits_of(x * (0.1 * i)));
  });
  CHECK(
      reported ==
      "[scaled] runs eagerly where it cannot be replayed: (f32[4]) would be entry 4 of at most 3; "
      "argument 1 is a number that had 4 values: pass it as a tensor, scalar_tensor(value), which "
      "replays read (reported once; report() counts eager calls)\n");
  CHECK(step.report().eager_calls == 17);
  CHECK(step.report().entries[1].reason == "argument 1 is 0.1, and was 0");
  CHECK_THAT(step.explain(), Catch::Contains("advice: argument 1 is a number that had 3 values: "
                                             "pass it as a tensor, scalar_tensor(value)"));
  // Another kind of reason is reported too.
  const auto on_a_queue = [&] {
    const Stream queue(cpu);
    const StreamGuard guard(queue);
    step(x, 0);
    step(x, 0);
  };
  CHECK_THAT(stderr_of(on_a_queue), Catch::Contains("the current stream of the CPU is a queue"));
  CHECK(stderr_of(on_a_queue) == "");

  auto silent = compile([](const Tensor& y) { return y * 2; },
                        {.most_entries = 1, .fallback = OnFallback::ignore});
  CHECK(stderr_of([&] {
          for (int n = 1; n < 4; ++n) silent(ones({n}));
        }) == "");
  CHECK(silent.report().eager_calls == 2);
  CHECK_THAT(silent.explain(), !Catch::Contains("advice"));
}

TEST_CASE("backward says why nothing was recorded", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 1));
  auto step = compile([&](const Tensor& x) { return sum(w * x); });
  const std::string expected =
      "[backward] expected a tensor that was computed from one that requires a gradient, got f32[]";
  CHECK(error_of([&] { backward(step(noise({3}, 2))); }) ==
        expected +
            ", a result of a compiled step, which carries no gradient: call backward in the "
            "step");
  CHECK(error_of([&] {
          const NoGrad constant;
          backward(sum(w * 2));
        }) == expected + "; a NoGrad is active on this thread");
  CHECK(error_of([&] { backward(sum(noise({3}, 1))); }) == expected);
}
