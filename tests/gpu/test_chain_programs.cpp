// Steps of long chains with many readers on a real GPU: losses and gradients of fused training are
// as near to those in f64 as eager training's.
#include <algorithm>
#include <cstdlib>

#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/cuda_testing.h"
#include "tests/gpu/delay.h"
#include "tests/harness/captured_stderr.h"
#include "tests/harness/catch.h"
#include "tests/harness/chain_programs.h"
#include "tests/harness/environment.h"

namespace brrr::test {
namespace {

using testing::kGpu;

void check(const ChainProgram& program) {
  INFO(program.name);
  CHECK(chain_error(program, kGpu) == "");
}

}  // namespace

TEST_CASE("a neural ODE by RK4 trains fused on the GPU", "[gpu][programs][chains]") {
  check(named_chain_programs().at(0));
}

TEST_CASE("solvers, cells and inner gradients train fused on the GPU", "[gpu][programs][chains]") {
  for (const ChainProgram& program : named_chain_programs()) {
    check(program);
    const MatmulPrecisionGuard tf32(Precision::tf32);  // generated products
    check(program);
  }
}

// BRRR_SEED=n: one seed.
TEST_CASE("random chains of small calls train fused on the GPU", "[gpu][programs][chains]") {
  const char* const asked = std::getenv("BRRR_SEED");
  const std::uint64_t first = asked ? std::strtoull(asked, nullptr, 10) : 1;
  for (std::uint64_t seed = first; seed < first + (asked ? 1 : 42); ++seed) {
    INFO("BRRR_SEED=" << seed);
    check(draw_chain_program(seed));
  }
}

// More column sums than a block's shared memory has room for, and more operands in transposed
// order.
TEST_CASE("kernels at the limits of shared memory are right on the GPU", "[gpu][programs]") {
  const auto worst = [](const auto& function, const std::vector<Tensor>& arguments) {
    std::vector<Tensor> on_gpu, exact;
    for (const Tensor& x : arguments) {
      on_gpu.push_back(to(x, kGpu));
      exact.push_back(to(x, f64));
    }
    auto step = compile(function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
    const Tensor got = to(to(step(on_gpu), cpu), f64), wanted = function(exact);
    return item(max(abs(got - wanted))) / std::max(1.0, item(max(abs(wanted))));
  };
  for (const int dim : {0, 1}) {
    for (const int count : {6, 12, 13, 24, 25, 48, 49, 60}) {
      INFO(count << " sums over dimension " << dim);
      const auto sums = [=](const std::vector<Tensor>& a) {
        Tensor value = a[0], all;
        for (int i = 0; i < count; ++i) {
          value = i % 2 ? neg(value) : tanh(value);
          const Tensor one = sum(value, {dim});
          all = all.defined() ? all + one : one;
        }
        return all;
      };
      CHECK(worst(sums, {noise({256, 96}, 1)}) < 1e-5);
    }
  }
  for (const int count : {1, 2, 11, 12, 17}) {
    INFO(count << " transposed operands");
    std::vector<Tensor> arguments;
    for (int i = 0; i <= count; ++i)
      arguments.push_back(noise({70, 70}, static_cast<std::uint64_t>(i) + 1));
    const auto total = [](const std::vector<Tensor>& a) {
      Tensor all = a[0];
      for (std::size_t i = 1; i < a.size(); ++i)
        all = all + transpose(a[i], 0, 1) * static_cast<double>(i);
      return all;
    };
    CHECK(worst(total, arguments) < 1e-5);
  }
}

TEST_CASE("a fused kernel that the driver refuses runs unfused on the GPU", "[gpu][programs]") {
  const EnvironmentVariable off("BRRR_CACHE", "off");
  const auto function = [](const std::vector<Tensor>& a) {
    return std::vector{(a[0] + a[1]) * 0.25 - a[1]};
  };
  const std::vector<Tensor> arguments = {to(noise({13, 7}, 1), kGpu), to(noise({13, 7}, 2), kGpu)};
  const auto wanted = to_vector<float>(to(function(arguments)[0], cpu));
  auto step = compile(function, {.mode = Mode::fused});
  const std::string said = stderr_of([&] {
    cu::fail_call("cuModuleLoadData", 1, CUDA_ERROR_INVALID_IMAGE);
    for (int call = 0; call < 3; ++call)
      CHECK(to_vector<float>(to(step(arguments)[0], cpu)) == wanted);
    cu::clear_faults();
  });
  CHECK_THAT(said, Catch::Contains("runs add + mul + sub (at ") && Catch::Contains(" unfused"));
  CHECK(step.kernels().empty());
}

}  // namespace brrr::test
