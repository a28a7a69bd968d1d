// Costs of ops and steps, by shapes counted by hand.
#include <chrono>
#include <thread>
#include <vector>

#include "brrr/measure/step_cost.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>
#include <brrr/nn/mlp.h>
#include <brrr/nn/transformer.h>

using namespace brrr;

namespace {

void check_cost(const std::function<Tensor()>& op, std::int64_t kernels, std::int64_t flops,
                std::int64_t bytes) {
  const measure::StepCost cost = measure::cost_of_step(cpu, [&] { op(); });
  CHECK(cost.kernels == kernels);
  CHECK(cost.flops == flops);
  CHECK(cost.bytes == bytes);
}

}  // namespace

TEST_CASE("costs follow from shapes", "[measure]") {
  const Tensor a = rand({3, 5}), b = rand({5, 7}), row = rand({7}), column = rand({3, 1}),
               batch = rand({2, 3, 5});
  check_cost([&] { return matmul(a, b); }, 1, 2 * 3 * 5 * 7, 4 * (15 + 35 + 21));
  check_cost([&] { return matmul(batch, b); }, 1, 2 * 2 * 3 * 5 * 7, 4 * (30 + 35 + 42));
  check_cost([&] { return affine(a, b, row); }, 1, 2 * 3 * 5 * 7 + 21, 4 * (15 + 35 + 7 + 21));
  check_cost([&] { return a * a; }, 1, 15, 4 * 45);
  check_cost([&] { return square(a) + 1; }, 2, 15 + 15, 4 * 60);
  // A broadcast operand is read once.
  check_cost([&] { return row + column; }, 1, 21, 4 * (7 + 3 + 21));
  check_cost([&] { return expand(column, {3, 4}) * 2; }, 1, 12, 4 * (3 + 12));
  check_cost([&] { return sum(a); }, 1, 15, 4 * 16);
  check_cost([&] { return mean(a); }, 1, 16, 4 * 16);
  check_cost([&] { return cumsum(a, 1); }, 1, 15, 4 * 30);
  const Tensor index = zeros({2, 5}, {.dtype = i64}), source = ones({2, 5});
  check_cost([&] { return scatter_add(a, 0, index, source); }, 1, 10, 4 * (15 + 10 + 15) + 8 * 10);
  check_cost([&] { return transpose(a, 0, 1); }, 0, 0, 0);
  check_cost([&] { return empty({9}); }, 0, 0, 0);
  check_cost([&] { return rand({9}); }, 1, 0, 24 + 4 * 9);  // with the seed, the step and the base
  check_cost([&] { return zeros({9}, {.dtype = bf16}); }, 1, 0, 2 * 9);
  check_cost([&] { return cast(a, f64); }, 1, 0, 15 * (4 + 8));
}

TEST_CASE("a step's peak is the most memory live at a time, with what was allocated before",
          "[measure]") {
  const Tensor kept = zeros({1000});
  const std::int64_t before = memory_stats(cpu).live;
  const measure::StepCost cost = measure::cost_of_step(cpu, [] {
    { const Tensor first = empty({1024}), second = empty({1024}); }
    const Tensor third = empty({512});
  });
  CHECK(cost.peak_bytes == before + 2 * 4096);
}

TEST_CASE("a backward's ops are counted with the forward's", "[measure]") {
  const Tensor x = rand({4, 6}), w = requires_grad_(rand({6, 5}));
  const Tensor g = ones({4, 5});
  const measure::StepCost cost = measure::cost_of_step(cpu, [&] { backward(matmul(x, w), g); });
  CHECK(cost.flops == 2 * (2 * 4 * 6 * 5));  // x needs no gradient
  CHECK(cost.kernels == 2);
}

TEST_CASE("FLOPs and bytes of an MLP are those counted by hand", "[measure]") {
  constexpr std::int64_t m = 4, in = 3, hidden = 5, out = 2;
  nn::MLP mlp({in, hidden, out}, nn::MLPOptions{.activation = nn::Activation::relu});
  const Tensor x = randn({m, in}), g = ones({m, out});
  const measure::StepCost cost = measure::cost_of_step(cpu, [&] { backward(mlp(x), g); });
  // x needs no gradient. A relu, or its gradient, is a comparison and a selection.
  const std::int64_t products = 2 * m * in * hidden + 2 * m * hidden * out,
                     of_gradients = 2 * m * in * hidden + 2 * (2 * m * hidden * out),
                     biases = 2 * m * (hidden + out), relus = 2 * m * hidden;
  CHECK(cost.flops == products + of_gradients + biases + 2 * relus);
  CHECK(cost.product_flops[0] == products + of_gradients + biases / 2);  // those that affine adds
  const std::int64_t forward = m * in + in * hidden + hidden + m * hidden +  // first layer
                               2 * m * hidden +                              // relu
                               m * hidden + hidden * out + out + m * out;    // second layer
  const std::int64_t backward = m * out + out * hidden + m * hidden +        // of its input
                                m * out + m * hidden + hidden * out +        // of its weight
                                m * out + out +                              // of its bias
                                3 * m * hidden +                             // relu
                                m * hidden + m * in + in * hidden +          // of the first weight
                                m * hidden + hidden;                         // of the first bias
  CHECK(cost.bytes == 4 * (forward + backward));
}

TEST_CASE("FLOPs of a transformer block are those counted by hand", "[measure]") {
  constexpr std::int64_t batch = 2, seq = 3, width = 8, heads = 2;
  nn::TransformerBlock block(width, heads, Options{}, /*causal=*/true);
  const Tensor x = randn({batch, seq, width}), g = ones({batch, seq, width});
  const measure::StepCost cost = measure::cost_of_step(cpu, [&] { backward(block(x), g); });
  constexpr std::int64_t rows = batch * seq, n = rows * width, hidden = 4 * n,
                         scores = batch * heads * seq * seq;
  // Weights: width x 3 width, width x width and twice width x 4 width. Each product has two of the
  // same size in the backward pass, since the norm before the first layer has parameters.
  const std::int64_t layers = 2 * rows * 12 * width * width,
                     attention = 2 * (2 * batch * seq * seq * width);
  const std::int64_t biases = n * (3 + 1 + 4 + 1);  // added, and their gradients summed
  CHECK(cost.product_flops[0] == 3 * (layers + attention) + biases);
  // mean, x - mean, square, mean, + eps, rsqrt (two), x * r, scale, shift
  const std::int64_t norm = 7 * n + 5 * rows;
  const std::int64_t softmax =
      6 * scores + seq * seq;  // mask, max, -, exp, sum, /; the mask itself
  // 1.6 x (1 + 0.04 x x) is five operations; then -, exp, 1 +, /.
  const std::int64_t gelu = 9 * hidden, gelu_gradient = 13 * hidden;
  const std::int64_t forward = 2 * norm + biases + n + softmax + 2 * n + gelu;  // n: q is scaled
  // Of the norm in the middle, with the sum of gradients at the residual; of the first one, whose
  // input needs no gradient, of scale and shift only.
  const std::int64_t norms = (14 * n + 6 * rows) + 3 * n;
  const std::int64_t back = biases + gelu_gradient + norms + 5 * scores + n + 2 * (3 * n);
  CHECK(cost.flops == 3 * (layers + attention) + forward + back);
}

TEST_CASE("a replay costs what its calls cost eagerly", "[measure][compile]") {
  const Tensor a = rand({3, 5}), b = rand({5, 7});
  const auto function = [&](const Tensor& x) { return relu(matmul(x, b)) + 1.0; };
  const measure::StepCost called = measure::cost_of_step(cpu, [&] { function(a); });
  auto step = compile(function);
  step(a);
  const measure::StepCost replayed = measure::cost_of_step(cpu, [&] { step(a); });
  CHECK(replayed.kernels == called.kernels);
  CHECK(replayed.flops == called.flops);
  CHECK(replayed.bytes == called.bytes);
}

TEST_CASE("a fused step does the arithmetic of its calls, and moves fewer bytes",
          "[measure][compile][fuse]") {
  const Tensor a = rand({8, 5});
  const auto function = [](const Tensor& x) { return mean(square(x * 2.0 + 1.0), 1); };
  const measure::StepCost called = measure::cost_of_step(cpu, [&] { function(a); });
  auto step = compile(function, {.mode = Mode::fused});
  step(a);
  const measure::StepCost fused = measure::cost_of_step(cpu, [&] { step(a); });
  CHECK(fused.flops == called.flops);
  CHECK(fused.bytes < called.bytes);
  CHECK(fused.kernels < called.kernels);
}

TEST_CASE("time outside of kernels is not in their share", "[measure]") {
  const Tensor a = rand({64, 64});
  const auto waiting = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    relu(a);
  };
  const measure::Timing share = measure::share_in_kernels(waiting, 1, 5);
  CHECK(share.samples == 5);
  CHECK(share.least >= 0);
  CHECK(share.median < 0.5);
  // A view has no kernel.
  CHECK(measure::share_in_kernels([&] { transpose(a, 0, 1); }, 10, 3).median == 0);
  CHECK(measure::share_in_kernels([&] { matmul(a, a); }, 100, 5).median > 0);
}

TEST_CASE("eager calls are counted by kind, and predicted by the host's times of these",
          "[measure]") {
  const Tensor a = ones({4, 4});
  const Tensor w = requires_grad_(ones({4, 4}));
  const measure::EagerCalls plain =
      measure::cost_of_step(cpu, [&] { matmul(a, transpose(a + a, 0, 1)); }).eager;
  CHECK(plain.kernels == 2);
  CHECK(plain.products == 1);
  CHECK(plain.views == 1);
  CHECK(plain.recorded == 0);
  // mul and sum, each with a node of the backward pass.
  const measure::EagerCalls recorded =
      measure::cost_of_step(cpu, [&] { backward(sum(w * a)); }).eager;
  CHECK(recorded.recorded == 2);
  CHECK(recorded.products == 0);

  const graph::EagerTimes times{.call_ps = 100,
                                .product_ps = 300,
                                .library_ps = 900,
                                .view_ps = 10,
                                .record_ps = 50,
                                .queued_ps = 70};
  CHECK(plain.ps(times) == 100 + 300 + 10);
  const graph::EagerTimes slower = measure::slowed(times, 1.5, cuda(0));
  CHECK(plain.ps(slower) == 150 + 450 + 15);
  CHECK(slower.record_ps == 75);
  CHECK(slower.queued_ps == 70);  // of the device
  CHECK(slower.library_ps == 1350);
  CHECK(measure::slowed(times, 1.5, cpu).queued_ps == 105);

  // Products of the library, the last of which calls it twice.
  measure::EagerCalls calls{.kernels = 5, .products = 3, .library = 2, .views = 0, .recorded = 0};
  CHECK(calls.ps(times) == 2 * 100 + 300 + 2 * 900);
  calls.library = 4;
  CHECK(calls.ps(times) == 2 * 100 + 4 * 900);
}

TEST_CASE("an eager step is predicted anew for a host of another speed", "[measure]") {
  const Tensor a = ones({64, 64});
  measure::StepCost cost = measure::cost_of_step(cpu, [&] { matmul(a, transpose(a, 0, 1)); });
  const StepTime at_first = cost.predicted;
  const graph::EagerTimes times = graph::ceilings_of(cpu)->eager;
  CHECK(cost.host_slowdown == 1);  // by defaults
  CHECK(at_first.overhead_ps == times.call_ps + times.view_ps);
  for (const double slowdown : {2.0, 0.5, 1.0}) {  // not on top of one another
    measure::predict_at(slowdown, cpu, cost);
    const StepTime& again = cost.predicted_at_timed_speed;
    CHECK(cost.timed_slowdown == slowdown);
    CHECK(static_cast<double>(again.overhead_ps) ==
          slowdown * static_cast<double>(at_first.overhead_ps));
    CHECK(again.compute_ps == at_first.compute_ps);
    CHECK(again.bandwidth_ps == at_first.bandwidth_ps);
    // The prediction that is scored stays as it was before the timing.
    CHECK(cost.host_slowdown == 1);
    CHECK(cost.predicted.ps() == at_first.ps());
  }
}

TEST_CASE("the host's slowdown is relative to the calibrated time of a call", "[measure]") {
  graph::Ceilings ceilings = graph::default_ceilings(cpu);
  CHECK(measure::host_slowdown(cpu, ceilings) == 1);  // defaults
  CHECK(measure::host_slowdown(measure::Timing{.median = 1}, ceilings) == 1);
  ceilings.date = "2026-01-02T03:04:05Z";
  ceilings.eager.call_ps = 2'000'000;
  CHECK(measure::host_slowdown(measure::Timing{.median = 3e-6}, ceilings) == 1.5);
  ceilings.eager.call_ps = 1'000'000'000;  // no host takes a millisecond for a call
  CHECK(measure::host_slowdown(cpu, ceilings) < 0.5);
  ceilings.eager.call_ps = 1;
  CHECK(measure::host_slowdown(cpu, ceilings) > 2);
}
