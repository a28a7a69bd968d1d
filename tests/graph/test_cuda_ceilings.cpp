// Ceilings of a GPU, and predictions of steps on it, on the fake driver.
#include "brrr/graph/ceilings.h"
#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/stream.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"

using namespace brrr;
using graph::ProductType;

TEST_CASE("default ceilings of a GPU follow from its properties", "[ceilings]") {
  graph::Ceilings small;
  {
    testing::FakeCuda fake({.major = 8});
    small = graph::default_ceilings(cuda(0));
    CHECK(graph::machine_of(cuda(0)) == "fake device, compute capability 8.0, 132 multiprocessors");
    CHECK_THAT(graph::software_of(cuda(0)), Catch::StartsWith("driver for CUDA 13000, "));
  }
  testing::FakeCuda fake;
  const graph::Ceilings c = graph::default_ceilings(cuda(0));
  CHECK_FALSE(c.calibrated());
  CHECK(c.f32_flops == 2 * small.f32_flops);
  CHECK(c.product(ProductType::bf16).rate() > c.product(ProductType::tf32).rate());
  CHECK(c.product(ProductType::tf32).rate() > c.product(ProductType::f32).rate());
  CHECK(c.product(ProductType::f32).time_of(1) >= 1'000'000);
  CHECK(c.node_ps < c.eager.queued_ps);
  CHECK(c.eager.queued_ps < c.eager.call_ps);
}

TEST_CASE("a replay on CUDA takes as long as its longest chain", "[ceilings][compile]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  const auto predicted = [](int chains, CompileOptions options) {
    auto step = compile(
        [chains](const Tensor& x) {
          std::vector<Tensor> ends;
          for (int chain = 0; chain < chains; ++chain) {
            Tensor y = x + chain;
            for (int i = 0; i < 9; ++i) y = y * 0.5;
            ends.push_back(y);
          }
          return ends;
        },
        std::move(options));
    step(empty({16}, {.device = cuda(0)}));
    return step.report().entries[0].predicted;
  };
  const graph::Ceilings c = graph::default_ceilings(cuda(0));
  const StepTime one = predicted(1, {});
  CHECK(one.overhead_ps == c.replay_ps + 10 * c.node_ps);
  CHECK(predicted(4, {}).overhead_ps <= one.overhead_ps + c.node_ps);
  CHECK(predicted(4, {.lanes = false}).overhead_ps == c.replay_ps + 40 * c.node_ps);
  // Fused it is one kernel.
  CHECK(predicted(1, {.mode = Mode::fused}).overhead_ps == c.replay_ps + c.node_ps);
  synchronize(cuda(0));
}
