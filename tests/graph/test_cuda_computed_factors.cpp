// Small products whose kernels compute their factors, and what stays a kernel of its own. Nothing
// here needs a GPU.
#include <algorithm>
#include <string>
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/nn/losses.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/ops/random_state.h"
#include "brrr/ops/register_op.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"

namespace brrr::test {
namespace {

const CompileOptions kFused{.mode = Mode::fused, .fallback = OnFallback::refuse};

using Calls = std::vector<std::string>;

std::vector<Calls> calls_of(const std::vector<GeneratedKernel>& kernels) {
  std::vector<Calls> calls;
  for (const GeneratedKernel& kernel : kernels) calls.push_back(kernel.calls);
  return calls;
}

// The kernels of a program's first call with tensors of f32.
template <class F>
std::vector<GeneratedKernel> kernels_of(F f, const std::vector<Dims>& shapes) {
  std::vector<Tensor> arguments;
  for (const Dims& shape : shapes) arguments.push_back(empty(shape, {.device = cuda(0)}));
  auto step = compile([&](const std::vector<Tensor>& a) { return std::vector{f(a)}; }, kFused);
  step(arguments);
  return step.kernels();
}

// A training step of layers in bf16 with weights in f32: how many kernels convert and do nothing
// else.
std::ptrdiff_t conversions_of_step(std::int64_t batch, std::int64_t width) {
  const Options here{.device = cuda(0)};
  const Tensor one = requires_grad_(empty({width, width}, here)),
               other = requires_grad_(empty({width, width}, here));
  auto step = compile(
      [&](const Tensor& x, const Tensor& y) {
        const Tensor input = cast(x, bf16);
        const Tensor hidden = gelu_tanh(linear(input, cast(one, bf16)));
        return grad(nn::mse_loss(cast(linear(hidden, cast(other, bf16)), f32), y), {one, other});
      },
      kFused);
  step(empty({batch, width}, here), empty({batch, width}, here));
  return std::ranges::count_if(step.kernels(), [](const GeneratedKernel& kernel) {
    return std::ranges::all_of(kernel.calls,
                               [](const std::string& call) { return call == "cast"; });
  });
}

}  // namespace

TEST_CASE("small products of layers with f32 weights convert them", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  CHECK(conversions_of_step(32, 64) == 0);
  release_random_state();
}

TEST_CASE("a factor is computed in the product's kernel unless something else reads it", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  const MatmulPrecisionGuard tf32(Precision::tf32);
  const std::vector<Dims> shapes = {{32, 64}, {64, 48}};
  const auto calls = [&](auto f) { return calls_of(kernels_of(f, shapes)); };
  using Tensors = std::vector<Tensor>;

  CHECK(calls([](const Tensors& a) { return matmul(a[0] * 0.5, a[1]); }) ==
        std::vector<Calls>{{"mul", "matmul"}});
  CHECK(calls([](const Tensors& a) { return matmul(a[0] * 0.5, a[1] + 1.0); }) ==
        std::vector<Calls>{{"add", "mul", "matmul"}});
  // Something else reads it, so that it is in memory: eager's kernel of a single call computes it.
  CHECK(calls([](const Tensors& a) {
          const Tensor x = a[0] * 0.5;
          return matmul(x, a[1]) + sum(x, {1}, true);
        }) == std::vector<Calls>{{"sum", "matmul", "add"}});
  CHECK(calls([](const Tensors& a) {
          const Tensor x = a[0] * 0.5;
          return matmul(x, a[1]) + sum(exp(x), {1}, true);
        }) == std::vector<Calls>{{"exp", "sum"}, {"matmul", "add"}});
  // Each of three tiles of columns would compute it again.
  CHECK(calls([](const Tensors& a) { return matmul(gelu_tanh(a[0]), a[1]); }).empty());
  // An epilogue computes it once. The other product is eager's kernel.
  CHECK(calls([](const Tensors& a) {
          return matmul(matmul(a[0], a[1]) * 0.5, transpose(a[1], 0, 1));
        }) == std::vector<Calls>{{"matmul", "mul"}});
}

TEST_CASE("a registered op is computed in the kernel of a product", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  const MatmulPrecisionGuard tf32(Precision::tf32);
  static const Op op = register_op({.name = "halved_square", .expression = "a * a * K(0.5)"});
  const auto kernels =
      kernels_of([](const std::vector<Tensor>& a) { return matmul(call_op(op, {a[0]}), a[1]); },
                 {{32, 64}, {64, 48}});
  CHECK(calls_of(kernels) == std::vector<Calls>{{"halved_square", "matmul"}});
}

TEST_CASE("what a factor is computed from is loaded before the wait if it is final", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  const MatmulPrecisionGuard tf32(Precision::tf32);
  const Dims scale = GENERATE(Dims{64, 1}, Dims{1, 64});
  const auto kernels = kernels_of(
      [](const std::vector<Tensor>& a) { return matmul(tanh(matmul(a[0], a[1])), a[2] * a[3]); },
      {{32, 64}, {64, 64}, {64, 64}, scale});
  REQUIRE(kernels.size() == 2);
  const std::string& source = kernels[1].source;
  const std::size_t run = source.find(" tile{");
  REQUIRE(run != std::string::npos);
  const std::size_t wait = source.find("wait_for_previous_kernel()", run);
  CHECK(source.find("tile.load_a(p)", run) > wait);
  CHECK(source.find("tile.load_b(p)", run) < wait);
}

}  // namespace brrr::test
