// Kernels that are timed by themselves.
#include <brrr/autograd/autograd.h>
#include <brrr/graph/compile.h>
#include <brrr/nn/losses.h>
#include <brrr/nn/mlp.h>
#include <brrr/nn/optim/optimizer.h>
#include <brrr/nn/optim/optimizers.h>
#include <brrr/ops/functions.h>
#include <brrr/ops/register_op.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include <brrr/graph/price.h>

#include "tests/harness/captured_stderr.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/counting_op.h"
#include "tests/harness/own_cache.h"

using namespace brrr;
using namespace brrr::test;

namespace {

using Lines = std::vector<std::string>;

double seconds_of(const core::LaunchCost& kernel) { return kernel.predicted.seconds(); }

// Losses of a training with dropout, whose kernels are timed before the third step or not at all.
Lines losses_of(Mode mode, bool measured) {
  manual_seed(3);
  nn::MLP model({8, 16, 8});
  optim::Optimizer optimizer(model, optim::adam(1e-2));
  const Tensor x = noise({4, 8}, 1), index = randint(0, 8, {4});
  auto step = compile(
      [&] {
        optimizer.zero_grad();
        const Tensor loss = nn::cross_entropy(model(dropout(x, 0.5)), index);
        backward(loss);
        optimizer.step();
        return detach(loss);
      },
      {.mode = mode, .fallback = OnFallback::refuse});
  Lines losses;
  for (int i = 0; i < 5; ++i) {
    if (i == 2 && measured) step.measure_kernels();
    losses.push_back(bits_of(step()));
  }
  for (const auto& [name, parameter] : model.named_parameters())
    losses.push_back(bits_of(parameter));
  CHECK(step.report().entries[0].measured == measured);
  losses.push_back(bits_of(rand({2})));
  return losses;
}

}  // namespace

TEST_CASE("price: timing kernels leaves a step's tensors, draws and results as they are",
          "[price]") {
  for (const Mode mode : {Mode::graph, Mode::fused})
    CHECK(losses_of(mode, true) == losses_of(mode, false));
}

TEST_CASE("price: a prediction is made of the times of kernels", "[price]") {
  const Tensor small = noise({64}, 1), large = noise({1 << 20}, 2);
  auto step = compile([&] { return std::vector{exp(small), exp(large)}; });
  step();
  const double before = static_cast<double>(step.report().entries[0].predicted.ps());
  CHECK(before > 0);
  step.measure_kernels();
  const std::vector<core::LaunchCost> kernels = step.launches();
  REQUIRE(kernels.size() == 2);
  CHECK(seconds_of(kernels[0]) > 0);
  // A million exponentials take a processor at least 50 us.
  CHECK(seconds_of(kernels[1]) > 50e-6);
  CHECK(seconds_of(kernels[1]) > 20 * seconds_of(kernels[0]));
  const double after = step.report().entries[0].predicted.seconds();
  CHECK(after >= seconds_of(kernels[0]) + seconds_of(kernels[1]));
  CHECK_THAT(step.explain(), Catch::Contains("predicted by times of its kernels: "));
}

TEST_CASE("price: equal kernels are timed once, whatever offsets their operands have", "[price]") {
  const Tensor x = noise({6, 4096}, 1);
  auto step = compile([&] {
    std::vector<Tensor> rows;
    for (int i = 0; i < 6; ++i) rows.push_back(tanh(select(x, 0, i)));
    return rows;
  });
  step();
  step.measure_kernels();
  const std::vector<core::LaunchCost> kernels = step.launches();
  REQUIRE(kernels.size() == 6);
  for (const core::LaunchCost& kernel : kernels)
    CHECK(kernel.predicted.ps() == kernels[0].predicted.ps());
}

TEST_CASE("price: calls with effects and checks do not run alone", "[price]") {
  runs_of_counting_ops = 0;
  for (const char* channel : {"", "price"}) {
    const core::Op op = counting_op("test_price_counts_", channel);
    const Tensor x = noise({4}, 1);
    for (const Mode mode : {Mode::graph, Mode::fused}) {
      auto step = compile([&] { return call_op(op, {checked(x * 0.1, -100.0, 0.9) * 2.0}, {})[0]; },
                          {.mode = mode});
      step();
      const int before = runs_of_counting_ops;
      CHECK_NOTHROW(step.measure_kernels());
      CHECK(runs_of_counting_ops == before);
      CHECK(step.report().entries[0].predicted.ps() > 0);  // of these the ceilings decide
    }
  }
}

TEST_CASE("price: a call that refuses the values that it is timed with has the ceilings' time",
          "[price]") {
  const core::Op op =
      register_op(StructuredOp{.name = "test_price_refuses",
                               .infer = infer_like_operand,
                               .cpu =
                                   [](const core::Call& call, Tensor* outputs) {
                                     if (item(call.input(0)) >= 1)
                                       throw Error("[test_price_refuses] expected less than 1");
                                     copy_(outputs[0], call.input(0));
                                   },
                               .pure = true,
                               .cost = core::cost_of_moving});
  const Tensor x = full({1}, 0.5);
  auto step = compile([&] { return call_op(op, {x}, {})[0]; });
  step();
  CHECK_NOTHROW(step.measure_kernels());
  const core::LaunchCost kernel = step.launches().at(0);
  CHECK(kernel.predicted.ps() == kernel.by_ceilings.ps());
  CHECK(item(step()) == 0.5);
}

TEST_CASE("price: indices are valid in every dimension, and spread", "[price]") {
  static std::set<std::int64_t> seen, flags;
  const core::Op op = register_op(
      StructuredOp{.name = "test_price_sees",
                   .inputs = 3,
                   .infer = infer_like_operand,
                   .cpu =
                       [](const core::Call& call, Tensor* outputs) {
                         const Tensor &index = call.input(1), &flag = call.input(2);
                         for (std::int64_t i = 0; i < index.numel(); ++i) {
                           seen.insert(index.data<std::int64_t>()[i]);
                           flags.insert(static_cast<std::int64_t>(flag.data<bool>()[i]));
                         }
                         copy_(outputs[0], call.input(0));
                       },
                   .pure = true,
                   .cost = core::cost_of_moving});
  const Tensor x = noise({8, 5}, 1), index = zeros({64}, {i64}), flag = gt(rand({64}), 0.5);
  auto step = compile([&] { return call_op(op, {x, index, flag}, {})[0]; });
  step();
  seen.clear();
  flags.clear();
  step.measure_kernels();
  CHECK(seen == std::set<std::int64_t>{0, 1, 2, 3, 4});
  CHECK(flags == std::set<std::int64_t>{0, 1});
  // Of integers alone, with numbers that have no dimension, and with a dimension of one.
  for (const auto& [table, last] : {std::pair(zeros({8, 5}, {i64}), 4),
                                    std::pair(full({}, 0.5), 63), std::pair(noise({8, 1}, 1), 0)}) {
    auto other = compile([&] { return call_op(op, {table, index, flag}, {})[0]; });
    other();
    seen.clear();
    other.measure_kernels();
    REQUIRE_FALSE(seen.empty());
    CHECK(*seen.begin() >= 0);
    CHECK(*seen.rbegin() <= last);
    CHECK(*seen.rbegin() >= last / 2);
  }
}

TEST_CASE("price: times are kept on disk, and damaged files are not used", "[price]") {
  const OwnCache cache;
  graph::forget_times();
  const Tensor x = noise({64, 3}, 1);
  const auto picoseconds = [&x] {
    graph::forget_times();
    auto step = compile([&x] { return exp(x); });
    step();
    step.measure_kernels();
    return step.launches().at(0).predicted.ps();
  };
  const auto files = [&cache] {
    std::vector<std::filesystem::path> found;
    for (const auto& each : std::filesystem::directory_iterator(cache.path)) {
      if (each.path().extension() == ".time") found.push_back(each.path());
    }
    return found;
  };
  picoseconds();
  REQUIRE(files().size() == 1);
  const std::string name = files()[0].stem().string();
  const jit::Hash128 key{std::stoull(name.substr(16), nullptr, 16),
                         std::stoull(name.substr(0, 16), nullptr, 16)};
  const auto write = [&key](std::int64_t ps, std::int64_t probe = 1) {
    const std::array<std::int64_t, 2> kept = {ps, probe};
    jit::disk_cache::write(key, "time", {reinterpret_cast<const char*>(kept.data()), sizeof kept});
  };
  // Of a machine that was far slower then: measured again, and kept.
  write(123'456'789'012, 1'000'000'000'000);
  const std::int64_t again = picoseconds();
  CHECK(again < 100'000'000'000);
  CHECK(picoseconds() == again);
  write(123'456'789'012);
  CHECK(picoseconds() == 123'456'789'012);
  for (const auto& [none, probe] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {-5, 1}, {5, 0}}) {
    write(none, probe);
    CHECK(picoseconds() > 0);
    CHECK(picoseconds() < 100'000'000'000);
  }
  write(123'456'789'012);
  std::ofstream(files()[0], std::ios::app) << "x";
  const std::string text = stderr_of([&] { CHECK(picoseconds() < 100'000'000'000); });
  CHECK((text.empty() || text.find("[fuse] measures again, since ") == 0));  // once a process
  CHECK(files().size() == 1);
  const EnvironmentVariable off("BRRR_CACHE", "off");
  CHECK(picoseconds() > 0);
}

TEST_CASE("price: threads that read, write and measure have one time of a kernel", "[price]") {
  const OwnCache cache;
  graph::forget_times();
  const Tensor x = noise({64, 3}, 1);
  std::vector<std::int64_t> times(4);
  std::vector<std::thread> threads;
  for (std::int64_t& time : times) {
    threads.emplace_back([&x, &time] {
      auto step = compile([&x] { return tanh(x); });
      step();
      step.measure_kernels();
      time = step.launches().at(0).predicted.ps();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::int64_t time : times) CHECK(time == times[0]);
}
