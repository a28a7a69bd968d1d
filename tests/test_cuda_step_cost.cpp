// Launches of a step, counted in the table of CUDA calls.
#include "brrr/brrr.h"
#include "measure/step_cost.h"
#include "tests/allocator_guards.h"
#include "tests/catch.h"
#include "tests/fake_cuda.h"

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
  CHECK(measure::cuda_launches([] {}) == 0);
  synchronize(cuda(0));
  CHECK(fake.problem().empty());
}
