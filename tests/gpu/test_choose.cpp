// What times decide in a fused step on a GPU.
#include <brrr/brrr.h>

#include <cmath>

#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/own_cache.h"

using namespace brrr;
using namespace brrr::test;

namespace {

struct Training {
  std::vector<std::string> bits;  // of losses and parameters
  std::vector<double> losses;
  std::string text;  // explain()
};

// Of a block with dropout and attention.
Training training(Mode mode, DType dtype, bool measure) {
  const Options here{.dtype = dtype, .device = brrr::testing::kGpu};
  manual_seed(3);
  nn::TransformerBlock model(64, 2, here, true, 0.1);
  optim::Optimizer optimizer(model, optim::adam(1e-2));
  const Tensor x = randn({4, 32, 64}, here), y = randn({4, 32, 64}, here);
  auto step = compile(
      [&](const Tensor& in) {
        optimizer.zero_grad();
        const Tensor loss = nn::mse_loss(model(in), y);
        backward(loss);
        optimizer.step();
        return detach(loss);
      },
      {.mode = mode, .fallback = OnFallback::refuse, .measure = measure});
  Training result;
  for (int i = 0; i < 5; ++i) {
    const Tensor loss = step(x);
    result.bits.push_back(bits_of(loss));
    result.losses.push_back(item(loss));
  }
  for (const auto& [name, parameter] : model.named_parameters())
    result.bits.push_back(bits_of(parameter));
  result.bits.push_back(bits_of(rand({2}, here)));
  result.text = step.explain();
  return result;
}

}  // namespace

TEST_CASE("choose: a step on a GPU that was timed is the same step, with the same bits again",
          "[choose][timing]") {
  for (const DType dtype : {f32, bf16}) {
    const OwnCache cache;
    const EnvironmentVariable on("BRRR_MEASURE", "on");
    const Training eager = training(Mode::eager, dtype, false);
    const Training timed = training(Mode::fused, dtype, true);
    const Training again = training(Mode::fused, dtype, true);
    CHECK_THAT(timed.text, Catch::Contains("fused, by times: "));
    CHECK_THAT(again.text, Catch::Contains("fused, by times that were measured before"));
    CHECK(again.bits == timed.bits);
    CHECK(timed.bits.back() == eager.bits.back());  // the generator
    for (std::size_t i = 0; i < eager.losses.size(); ++i) {
      const double most = (dtype == f32 ? 1e-4 : 0.02) * std::abs(eager.losses[i]);
      CHECK(std::abs(timed.losses[i] - eager.losses[i]) <= most);
    }
    const EnvironmentVariable off("BRRR_CACHE", "off");
    const Training by_model = training(Mode::fused, dtype, true);
    CHECK_THAT(by_model.text, Catch::Contains("fused, by the model, since no choice can be kept"));
    CHECK(by_model.bits == training(Mode::fused, dtype, false).bits);
  }
}
