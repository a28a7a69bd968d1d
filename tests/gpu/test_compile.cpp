// Compiled steps on a GPU: the bits of eager calls, in captured graphs with lanes and early
// launches.
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/nn/attention.h"
#include "brrr/nn/dropout.h"
#include "brrr/nn/losses.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/optim/clip.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/nn/parameters.h"
#include "brrr/nn/sequential.h"
#include "brrr/nn/transformer.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/ops/register_op.h"
#include "brrr/tensor/allocator.h"
#include "brrr/tensor/error.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_random.h"
#include "tests/harness/memory_checks.h"

using namespace brrr;
using brrr::testing::kGpu;

namespace {

constexpr int kSteps = 6;

struct Outcome {
  std::vector<std::vector<double>> values;  // losses, then what is left
  CompileReport report;
};

std::vector<double> values_of(const Tensor& x) { return to_vector<double>(cast(x, f64)); }

// Trains `make(...)`'s module in a mode. Inputs are arguments.
template <class Make>
Outcome train(Mode mode, DType dtype, const Dims& shape, Make&& make, CompileOptions options = {}) {
  manual_seed(5);
  const Options here{.dtype = dtype, .device = kGpu};
  auto module = make(here);
  nn::Parameters parameters(*module);
  optim::Optimizer optimizer(parameters,
                             optim::chain(optim::clip_by_global_norm(0.5),
                                          optim::adamw(optim::linear_schedule(0, 0.01, 4), 0.01)));
  options.mode = mode;
  options.frozen_rate = OnFrozenRate::ignore;
  auto step = compile(
      [&](const Tensor& x, const Tensor& y) {
        parameters.zero_grad();
        const Tensor loss = nn::mse_loss(dropout((*module)(x), 0.2), y);
        backward(loss);
        optimizer.step();
        return loss;
      },
      options);
  std::vector<Tensor> kept;
  for (int i = 0; i < kSteps; ++i) {
    const Tensor x = randn(shape, here), y = randn(shape, here);
    kept.push_back(step(x, y));
    if (i == 3) next_random_step(kGpu);
    if (i == 2) kept.push_back(randn({8}, here));  // draws between replays
  }
  for (const Tensor& value : parameters.values()) kept.push_back(value);
  for (const Tensor& gradient : parameters.gradients()) kept.push_back(gradient);
  Outcome outcome;
  for (const Tensor& x : kept) outcome.values.push_back(values_of(x));
  outcome.report = step.report();
  return outcome;
}

auto mlp(std::int64_t width, int layers) {
  return [=](const Options& here) {
    return std::make_unique<nn::MLP>(
        std::vector<std::int64_t>(static_cast<std::size_t>(layers) + 1, width), here);
  };
}

auto transformer(std::int64_t width, int heads) {
  return [=](const Options& here) {
    auto blocks = std::make_unique<nn::Sequential>();
    blocks->add<nn::TransformerBlock>(width, heads, here);
    blocks->add<nn::TransformerBlock>(width, heads, here);
    return blocks;
  };
}

}  // namespace

TEST_CASE("training steps have the same bits captured and eager", "[gpu][compile]") {
  for (const Precision precision : {Precision::full, Precision::tf32}) {
    const MatmulPrecisionGuard guard(precision);
    for (const DType dtype : {f32, bf16, f16, f64}) {
      INFO(name_of(dtype) << (precision == Precision::tf32 ? " tf32" : ""));
      for (const std::int64_t width : {8, 64, 200}) {
        INFO("width " << width);
        const Outcome eager = train(Mode::eager, dtype, {24, width}, mlp(width, 4));
        const Outcome graph = train(Mode::graph, dtype, {24, width}, mlp(width, 4));
        CHECK(graph.values == eager.values);
        REQUIRE(graph.report.entries.size() == 1);
        CHECK(graph.report.entries[0].launches > 0);
        CHECK(graph.report.eager_calls == 0);
      }
      const Outcome eager = train(Mode::eager, dtype, {2, 16, 32}, transformer(32, 4));
      const Outcome graph = train(Mode::graph, dtype, {2, 16, 32}, transformer(32, 4));
      CHECK(graph.values == eager.values);
    }
  }
}

TEST_CASE("lanes and early launches change no bit", "[gpu][compile]") {
  const MatmulPrecisionGuard tf32(Precision::tf32);
  const Outcome eager = train(Mode::eager, f32, {64, 128}, mlp(128, 12));
  for (const bool lanes : {false, true}) {
    for (const bool early : {false, true}) {
      for (int again = 0; again < 10; ++again) {
        const Outcome graph = train(Mode::graph, f32, {64, 128}, mlp(128, 12),
                                    {.lanes = lanes, .programmatic = early});
        CHECK(graph.values == eager.values);
        CHECK((graph.report.entries[0].lanes > 1) == lanes);
      }
    }
  }
}

// Products of fused steps load what is final before they wait for the kernel ahead of them. Kernels
// of few blocks leave multiprocessors that see nothing of a step but such loads.
TEST_CASE("factors that are loaded before the wait are final", "[gpu][compile]") {
  const MatmulPrecisionGuard tf32(Precision::tf32);
  for (const DType dtype : {f32, bf16}) {
    for (const Dims& shape : {Dims{16, 64}, Dims{64, 128}, Dims{128, 256}, Dims{40, 200}}) {
      INFO(name_of(dtype) << " " << shape[0] << " x " << shape[1]);
      const Outcome in_order = train(Mode::fused, dtype, shape, mlp(shape[1], 12),
                                     {.lanes = false, .programmatic = false});
      for (int again = 0; again < 10; ++again) {
        const Outcome early = train(Mode::fused, dtype, shape, mlp(shape[1], 12));
        CHECK(early.values == in_order.values);
      }
    }
  }
}

TEST_CASE("independent chains run side by side with the same bits", "[gpu][compile]") {
  std::vector<Tensor> starts;
  manual_seed(1);
  const Tensor w = mul(randn({64, 64}, {.device = kGpu}), 0.1);
  for (int i = 0; i < 16; ++i) starts.push_back(randn({64, 64}, {.device = kGpu}));
  const auto chains = [&] {
    std::vector<Tensor> ends;
    for (Tensor x : starts) {
      for (int i = 0; i < 10; ++i) x = matmul(x, w);
      ends.push_back(x);
    }
    return stack(ends);
  };
  const std::vector<double> expected = values_of(chains());
  auto step = compile(chains);
  for (int i = 0; i < 20; ++i) CHECK(values_of(step()) == expected);
  CHECK(step.report().entries[0].lanes == 16);
}

TEST_CASE("the planned peak is that of a replay under every policy, within 2 %", "[gpu][compile]") {
  for (const DType dtype : {f32, bf16}) {
    for (const Mode mode : {Mode::graph, Mode::fused}) {
      for (const Remat remat : {Remat::none(), Remat::min_cut(), Remat::budget(0.9),
                                Remat::budget(0.5), Remat::full()}) {
        manual_seed(4);
        const Options here{.dtype = dtype, .device = kGpu};
        auto blocks = transformer(128, 4)(here);
        nn::Parameters parameters(*blocks);
        const Tensor x = randn({8, 64, 128}, here);
        auto step = compile(
            [&] {
              parameters.zero_grad();
              const Tensor loss = mean(square((*blocks)(x)));
              backward(loss);
              return detach(loss);
            },
            {.mode = mode, .remat = remat});
        try {
          step();
        } catch (const Error& refused) {  // with the least fraction of memory that can be met
          CHECK(remat.kind() == Remat::Kind::budget);
          CHECK_THAT(refused.what(), Catch::Contains("expected a budget that the step can meet"));
          continue;
        }
        step();
        const brrr::testing::PlannedPeak peak = brrr::testing::planned_peak(step, kGpu);
        INFO(name_of(dtype) << ", planned " << peak.planned << ", measured " << peak.measured);
        CHECK(peak.measured >= peak.planned);
        CHECK(static_cast<double>(peak.measured) <= 1.02 * static_cast<double>(peak.planned));
      }
    }
  }
}

TEST_CASE("the arena is within the bound, and no more than eager's peak", "[gpu][compile]") {
  for (const bool wide : {false, true}) {
    const auto measure_peak = [&](Mode mode, CompileReport* report) {
      manual_seed(2);
      const Options here{.device = kGpu};
      auto blocks = transformer(wide ? 256 : 64, 4)(here);
      nn::Parameters parameters(*blocks);
      optim::Optimizer optimizer(parameters, optim::adam(1e-3));
      const Tensor x = randn({4, 32, wide ? 256 : 64}, here);
      auto step = compile(
          [&] {
            parameters.zero_grad();
            const Tensor loss = mean(square((*blocks)(x)));
            backward(loss);
            optimizer.step();
            return loss;
          },
          {.mode = mode, .frozen_rate = OnFrozenRate::ignore});
      for (int i = 0; i < 3; ++i) step();
      synchronize(kGpu);
      reset_peak_memory(kGpu);
      const Tensor loss = step();
      synchronize(kGpu);
      if (report) *report = step.report();
      return memory_stats(kGpu).peak;
    };
    synchronize(kGpu);
    const std::int64_t before = memory_stats(kGpu).live;
    const std::int64_t eager = measure_peak(Mode::eager, nullptr) - before;
    CompileReport report;
    const std::int64_t graph = measure_peak(Mode::graph, &report) - before;
    const CompiledEntry& entry = report.entries[0];
    // Gradients that a step leaves behind are there from its start on; eager makes them at its end.
    CHECK(graph - static_cast<std::int64_t>(entry.kept_bytes) <= eager);
    CHECK(static_cast<std::int64_t>(entry.arena_bytes) <= eager);
    CHECK(static_cast<double>(entry.arena_bytes) <= 1.05 * static_cast<double>(entry.least_bytes));
  }
}

TEST_CASE("a user's kernel is captured, and one that waits is refused by name", "[gpu][compile]") {
  StructuredOp doubled;
  doubled.cost = cost_of_moving;
  doubled.name = "compile_doubled";
  doubled.infer = [](const Call& call, OutputSpec* outputs) {
    const Tensor& x = call.input(0);
    outputs[0] = {x.dtype(), x.device(), Dims(x.shape())};
  };
  doubled.cuda_kernel.entry = "compile_doubled";
  doubled.cuda_kernel.source =
      "extern \"C\" __global__ void compile_doubled(const float* in, float* out) {\n"
      "  out[threadIdx.x] = 2 * in[threadIdx.x];\n}\n";
  doubled.cuda_kernel.launch = [](const Call& call, const Tensor*) {
    LaunchConfig launch;
    launch.block[0] = static_cast<unsigned>(call.input(0).numel());
    return launch;
  };
  const Op op = register_op(doubled);
  const Tensor ones_there = ones({256}, {.device = kGpu});
  auto step = compile([&](const Tensor& x) { return add(call_op(op, {mul(x, 3)}, {})[0], 1); });
  for (int i = 0; i < 5; ++i)
    CHECK(to_vector<float>(step(ones_there)) == std::vector<float>(256, 7.0f));

  StructuredOp waiting = doubled;
  waiting.name = "compile_waiting";
  waiting.cuda_kernel = {};
  waiting.cuda = [](const Call& call, Tensor* outputs) {
    synchronize(call.input(0).device());
    copy_(outputs[0], call.input(0));
  };
  const Op waits = register_op(waiting);
  auto refused = compile([&](const Tensor& x) { return call_op(waits, {x}, {})[0]; });
  refused(ones_there);  // its calls are made one by one
  CHECK_THROWS_WITH(refused(ones_there), Catch::Contains("compile_waiting"));
  // The stream is as before.
  CHECK(to_vector<float>(step(ones_there)) == std::vector<float>(256, 7.0f));
  CHECK(to_vector<float>(add(ones_there, 1)) == std::vector<float>(256, 2.0f));
}

TEST_CASE("results of replays stay, whatever comes after", "[gpu][compile]") {
  Tensor state = zeros({1000}, {.device = kGpu});
  auto step = compile([&](const Tensor& x) {
    add_(state, x);
    return std::pair(mul(state, 2), sum(state));
  });
  std::vector<std::pair<Tensor, Tensor>> kept;
  for (int i = 0; i < 50; ++i) kept.push_back(step(full({1000}, i, {.device = kGpu})));
  double total = 0;
  for (int i = 0; i < 50; ++i) {
    total += i;
    CHECK(to_vector<float>(kept[static_cast<std::size_t>(i)].first) ==
          std::vector<float>(1000, static_cast<float>(2 * total)));
    CHECK(item(kept[static_cast<std::size_t>(i)].second) == 1000 * total);
  }
}

TEST_CASE("memory does not grow over replays and compilations", "[gpu][compile]") {
  const Tensor w = randn({64, 64}, {.device = kGpu});
  auto step =
      compile([&](const Tensor& x) { return sum(square(matmul(x, w))); }, {.most_entries = 4});
  for (int i = 0; i < 200; ++i) step(ones({1 + i % 9, 64}, {.device = kGpu}));
  synchronize(kGpu);
  const auto before = memory_stats(kGpu);
  for (int i = 0; i < 10000; ++i) step(ones({1 + i % 9, 64}, {.device = kGpu}));
  synchronize(kGpu);
  CHECK(memory_stats(kGpu).live == before.live);
  CHECK(memory_stats(kGpu).reserved == before.reserved);
  CHECK(step.report().entries.size() == 4);
  CHECK(step.report().eager_calls > 5000);

  // Compiling over and over gives everything back.
  for (int i = 0; i < 30; ++i) {
    auto again = compile([&](const Tensor& x) { return matmul(square(x), w); });
    for (int k = 0; k < 3; ++k) again(ones({8, 64}, {.device = kGpu}));
  }
  synchronize(kGpu);
  CHECK(memory_stats(kGpu).live == before.live);
}

// A sum loads by the address's place in 16 bytes, and adds up in that order.
TEST_CASE("arguments that start anywhere have eager's bits", "[gpu][compile]") {
  const Tensor all = randn({80000}, {.device = kGpu});
  auto sums = compile([](const Tensor& x) {
    const Tensor rows = view(x, {79, 1009});
    return std::vector{sum(x), sum(rows, {0}), sum(rows, {1}), mul(x, 2)};
  });
  auto add_one = compile([](Tensor x) { add_(x, 1); });
  for (int call = 0; call < 3; ++call) {
    for (std::int64_t first : {0, 1, 2, 3, 5, 7, 12}) {
      INFO("from element " << first);
      const Tensor x = slice(all, 0, first, first + 79 * 1009);
      const Tensor rows = view(x, {79, 1009});
      const std::vector<Tensor> expected = {sum(x), sum(rows, {0}), sum(rows, {1}), mul(x, 2)};
      const std::vector<Tensor> results = sums(x);
      for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(to_vector<float>(results[i]) == to_vector<float>(expected[i]));
      const std::vector<float> plus_one = to_vector<float>(add(x, 1));
      add_one(x);
      CHECK(to_vector<float>(x) == plus_one);
    }
  }
  CHECK(sums.report().entries.size() == 4);
}

TEST_CASE("a captured step reports indices and values out of range", "[gpu][compile]") {
  const Tensor table = to(reshape(arange(8.0), {4, 2}), kGpu);
  auto rows = compile([&](const Tensor& index) { return embedding(table, index) * 2; });
  auto classes = compile([](const Tensor& index) { return one_hot(index, 4); });
  auto draws = compile([](const Tensor& p) { return bernoulli(p); });
  const auto at = [](std::int64_t i) { return to(tensor<std::int64_t>({0, i}), kGpu); };
  const auto error_at_wait = [](auto&& replay) {
    return testing::error_of([&] {
      replay();
      synchronize(kGpu);
    });
  };
  for (int call = 0; call < 3; ++call) {
    CHECK(values_of(rows(at(3))) == std::vector<double>{0, 2, 12, 14});
    CHECK(values_of(classes(at(2))) == std::vector<double>{1, 0, 0, 0, 0, 0, 1, 0});
    CHECK(error_at_wait([&] { rows(at(4)); }) ==
          "[embedding] expected indices in [0, 4), got 4 at position 1");
    CHECK(error_at_wait([&] { classes(at(-1)); }) ==
          "[one_hot] expected values in [0, 3], got -1 at position 1");
    CHECK(error_at_wait([&] { draws(full({3}, 1.5, {.device = kGpu})); }) ==
          "[bernoulli] expected values in [0, 1], got 1.5 at position 0");
  }
}

TEST_CASE("random programs have eager's bits when they are captured", "[gpu][programs]") {
  test::check_random_programs(kGpu, 600);
}
