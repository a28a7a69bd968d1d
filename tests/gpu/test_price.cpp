// Kernels that are timed by themselves, on a GPU.
#include <brrr/brrr.h>

#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"

using namespace brrr;
using namespace brrr::test;

namespace {

// Losses of a training with dropout and attention, whose kernels are timed before the third step or
// not at all.
std::vector<std::string> losses_of(Mode mode, DType dtype, bool measured) {
  const Options here{.dtype = dtype, .device = brrr::testing::kGpu};
  manual_seed(3);
  nn::TransformerBlock model(64, 2, here, true, 0.1);
  optim::Optimizer optimizer(model, optim::adam(1e-2));
  const Tensor x = randn({4, 32, 64}, here), y = randn({4, 32, 64}, here);
  auto step = compile(
      [&] {
        optimizer.zero_grad();
        const Tensor loss = nn::mse_loss(model(x), y);
        backward(loss);
        optimizer.step();
        return detach(loss);
      },
      {.mode = mode, .fallback = OnFallback::refuse});
  std::vector<std::string> losses;
  for (int i = 0; i < 5; ++i) {
    if (i == 2 && measured) step.measure_kernels();
    losses.push_back(bits_of(step()));
  }
  for (const auto& [name, parameter] : model.named_parameters())
    losses.push_back(bits_of(parameter));
  losses.push_back(bits_of(rand({2}, here)));
  if (measured) {
    const CompiledEntry entry = step.report().entries[0];
    CHECK(entry.measured);
    CHECK(entry.predicted.ps() != entry.by_ceilings.ps());
    // A kernel of a graph takes half a microsecond at least, and none of this step a millisecond.
    for (const core::LaunchCost& kernel : step.launches()) {
      INFO(kernel.name);
      CHECK(kernel.predicted.ps() > 300'000);
      CHECK(kernel.predicted.ps() < 1'000'000'000);
    }
  }
  return losses;
}

}  // namespace

TEST_CASE("price: timing kernels leaves a step on a GPU as it is", "[price]") {
  for (const DType dtype : {f32, bf16}) {
    for (const Mode mode : {Mode::graph, Mode::fused})
      CHECK(losses_of(mode, dtype, true) == losses_of(mode, dtype, false));
  }
}
