// Launches of a step, counted in the table of CUDA calls.
#include "brrr/measure/step_cost.h"
#include "brrr/measure/timing.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;

TEST_CASE("the launches of a step on CUDA are counted where they are made", "[measure]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  const Tensor a = zeros({8, 8}, {.device = cuda(0)}), b = zeros({8, 8}, {.device = cuda(0)});
  const auto step = [&] { relu(matmul(a, b) + transpose(a, 0, 1)); };
  step();
  synchronize(cuda(0));
  const measure::StepCost cost = measure::cost_of_step(cuda(0), step);
  CHECK(cost.kernels == 3);
  CHECK(cost.flops == 2 * 512 + 64 + 2 * 64);
  CHECK(cost.eager.products == 1);
  CHECK(cost.eager.library == 1);
  CHECK(measure::cuda_launches([] {}).all == 0);
  CHECK(measure::cuda_launches([&] { relu(a); }).library == 0);
  synchronize(cuda(0));
}

TEST_CASE("queued calls are timed when all of them are queued, or not at all", "[measure]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true});
  const Tensor x = zeros({8}, {.device = cuda(0)});
  int calls = 0;
  const auto call = [&] {
    ++calls;
    relu(x);
  };
  const std::optional<measure::Timing> timing = measure::time_queued(cuda(0), call, 4, 5);
  REQUIRE(timing);
  CHECK(timing->samples == 5);
  CHECK(calls == 4 * 5);
  CHECK(measure::time_host(cuda(0), call, 3, 2).samples == 2);
  CHECK(calls == 20 + 6);
  // A stream that does not wait for the last call: the blocked work is released after a while.
  CHECK_FALSE(measure::time_queued(
      cuda(0),
      [&] {
        call();
        fake.step();
      },
      2, 5));
  CHECK(calls == 26 + 2);
  CHECK_FALSE(measure::time_queued(cpu, call, 1, 1));
  CHECK(calls == 28);
}

TEST_CASE("calls are enqueued on a stream that was idle", "[measure]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true});
  const Tensor x = zeros({8}, {.device = cuda(0)});
  int calls = 0;
  const measure::Batch batch = measure::enqueued_batch(cuda(0), [&] {
    ++calls;
    relu(x);
  });
  CHECK(batch(3) > 0);
  CHECK(calls == 3);
  synchronize(cuda(0));
}

TEST_CASE("what slows a batch and its unit down leaves their ratio", "[measure]") {
  int calls = 0;  // the host is three times as slow during every other 20 of them
  const auto seconds = [&calls](double of_call, long n) {
    return of_call * (calls++ / 20 % 2 ? 3 : 1) * static_cast<double>(n);
  };
  const measure::Batch batch = [&](long n) { return seconds(4e-5, n); };
  const measure::Batch unit = [&](long n) { return seconds(1e-5, n); };
  const measure::Sampling sampling{.samples = 81, .sample_seconds = 1e-3, .budget_seconds = 1};
  const measure::Timing ratio = measure::time_relative(batch, unit, sampling);
  CHECK(ratio.median == Approx(4));
  CHECK(ratio.spread < 1e-9);
  CHECK(measure::time_both(batch, unit, sampling).first.spread > 0.5);
}

TEST_CASE("each of several batches is first equally often, and follows each other one",
          "[measure]") {
  std::vector<int> order;
  std::vector<measure::Batch> batches;
  for (int i = 0; i < 3; ++i) {
    batches.push_back([&order, i](long) {
      order.push_back(i);
      return 1e-3;
    });
  }
  measure::time_all(batches, {.samples = 12, .sample_seconds = 1e-3, .budget_seconds = 10});
  REQUIRE(order.size() > 36);
  order.erase(order.begin(), order.end() - 36);
  int first[3] = {}, follows[3][3] = {};
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i % 3 == 0) ++first[order[i]];
    if (i > 0) ++follows[order[i - 1]][order[i]];
  }
  for (int a = 0; a < 3; ++a) {
    CHECK(first[a] == 4);
    for (int b = 0; b < 3; ++b) CHECK((a == b || follows[a][b] >= 3));
  }
}

TEST_CASE("a stream queues a few hundred launches at a time", "[measure]") {
  CHECK(measure::calls_in_queue(1) == 10);
  CHECK(measure::calls_in_queue(0) == 10);
  CHECK(measure::calls_in_queue(200) == 2);
  CHECK(measure::calls_in_queue(10'000) == 1);
}
