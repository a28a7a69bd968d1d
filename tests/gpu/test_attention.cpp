// Fused attention on CUDA: against float64, and the bits of every replay.
#include <cmath>

#include "brrr/ops/attention.h"
#include "brrr/ops/matmul.h"
#include "tests/harness/attention_programs.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/skip.h"

namespace brrr::test {
namespace {

// Of the largest number that is wanted.
double largest_error(const Tensor& got, const Tensor& wanted) {
  const Tensor error = max(abs(cast(to(got, cpu), f64) - wanted));
  const double scale = item<double>(max(abs(wanted)));
  const double relative = item<double>(error) / std::max(scale, 1e-30);
  return std::isnan(relative) ? INFINITY : relative;
}

auto compiled(const AttentionCase& c) {
  return compile([c](const std::vector<Tensor>& a) { return attend(c, a); },
                 {.mode = Mode::fused, .fallback = OnFallback::refuse});
}

}  // namespace

TEST_CASE("fused attention agrees with float64", "[gpu][attention][sanitized]") {
  const MatmulPrecisionGuard tf32(Precision::tf32);
  for (const AttentionCase& c : attention_cases()) {
    INFO(c.name());
    const std::vector<Tensor> arguments = c.arguments(cuda(0));
    std::vector<Tensor> exact;
    for (const Tensor& x : arguments)
      exact.push_back(x.dtype() == boolean ? to(x, cpu) : cast(to(x, cpu), f64));
    const std::vector<Tensor> wanted = attend(c, exact);
    auto step = compiled(c);
    const std::vector<Tensor> got = step(arguments), again = step(arguments);
    CHECK_THAT(step.graph_text(), Catch::Contains("fused_attention("));
    // A rounding of each factor and of the result: relative to the largest element.
    const double bound = c.dtype == bf16 ? 1.5e-2 : 3e-3;
    REQUIRE(got.size() == wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO("result " << i);
      CHECK(largest_error(got[i], wanted[i]) < bound);
      CHECK(bits_of(got[i]) == bits_of(again[i]));
    }
  }
}

TEST_CASE("a query that sees no key has no result that is a number, as eagerly",
          "[gpu][attention]") {
  const AttentionCase c{.query = {1, 1, 70, 64}, .keys = 70, .masking = Masking::causal};
  std::vector<Tensor> arguments = c.arguments(cuda(0));
  fill_(narrow(arguments[4], 0, 3, 1), 0);
  auto step = compiled(c);
  const Tensor out = to(cast(step(arguments)[0], f32), cpu);
  for (std::int64_t row = 0; row < 70; ++row)
    CHECK(std::isnan(out.data<float>()[row * 64 + 5]) == (row == 3));
}

TEST_CASE("a step with fused attention trains as an eager one does", "[gpu][attention]") {
  const auto losses = [](Mode mode) {
    manual_seed(3);
    const Options options{.dtype = bf16, .device = cuda(0)};
    nn::TransformerBlock block(64, 2, options, true);
    auto optimizer = optim::Optimizer(block, optim::adam(1e-3));
    const Tensor x = randn({4, 96, 64}, options), y = randn({4, 96, 64}, options);
    auto step = compile(
        [&] {
          optimizer.zero_grad();
          const Tensor loss = nn::mse_loss(block(x), y);
          backward(loss);
          optimizer.step();
          return detach(loss);
        },
        {.mode = mode, .fallback = OnFallback::refuse});
    std::vector<double> all;
    for (int i = 0; i < 30; ++i) all.push_back(item<float>(cast(step(), f32)));
    if (mode == Mode::fused)
      CHECK_THAT(step.graph_text(), Catch::Contains("fused_attention_gradient("));
    return all;
  };
  const std::vector<double> wanted = losses(Mode::graph), got = losses(Mode::fused);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    CHECK(std::abs(got[i] - wanted[i]) < 2e-2 * wanted[0]);
  CHECK(wanted.back() < wanted.front());
}

}  // namespace brrr::test
