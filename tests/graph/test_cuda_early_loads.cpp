// Small products of fused steps on CUDA: which run in one launch, and what each loads before it
// waits for the kernel ahead. The texts of kernels tell; nothing here needs a GPU.
#include <algorithm>
#include <map>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/nn/losses.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/parameters.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/ops/random_state.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"

namespace brrr::test {
namespace {

// What a product of a launch does, in order: loads of its factors (a and b, or f for both) and of
// other inputs (i), the wait for the kernel ahead (w), the start of the next one (n), the product
// (p).
std::string order_of(const std::string& source, int product) {
  const std::string name = "namespace part_" + std::to_string(product);
  const std::size_t begin = source.find(name + " {"), end = source.find("}  // " + name);
  REQUIRE(begin != std::string::npos);
  const std::pair<const char*, char> kSteps[] = {{"  tile.load(p);", 'f'},
                                                 {"  tile.load_a(p);", 'a'},
                                                 {"  tile.load_b(p);", 'b'},
                                                 {"  begin_row(row,", 'i'},
                                                 {"  wait_for_previous_kernel();", 'w'},
                                                 {"  start_next_kernel();", 'n'},
                                                 {"tile.sum(p,", 'p'}};
  std::map<std::size_t, char> found;
  for (const auto& [text, step] : kSteps) {
    const std::size_t at = source.find(text, begin);
    if (at < end) found[at] = step;
  }
  std::string order;
  for (const auto& [at, step] : found) order += step;
  return order;
}

// Those of every launch with products, "|" between products of one launch.
std::vector<std::string> orders_of(const std::vector<GeneratedKernel>& kernels) {
  std::vector<std::string> orders;
  for (const GeneratedKernel& kernel : kernels) {
    const auto products = std::ranges::count_if(
        kernel.calls, [](const std::string& call) { return call == "matmul" || call == "affine"; });
    if (products == 0) continue;
    std::string order = order_of(kernel.source, 0);
    for (int i = 1; i < products; ++i) order += "|" + order_of(kernel.source, i);
    orders.push_back(std::move(order));
  }
  return orders;
}

// The products of a training step of an MLP. `input_gradient`: also of its argument.
std::vector<std::string> products_of_step(int layers, bool input_gradient) {
  const MatmulPrecisionGuard tf32(Precision::tf32);
  const Options here{.device = cuda(0)};
  nn::MLP mlp(std::vector<std::int64_t>(static_cast<std::size_t>(layers) + 1, 64), here);
  nn::Parameters parameters(mlp);
  auto step = compile(
      [&](const Tensor& x, const Tensor& y) {
        parameters.zero_grad();
        const Tensor input = input_gradient ? requires_grad_(detach(x)) : x;
        const Tensor loss = nn::mse_loss(mlp(input), y);
        backward(loss);
        return input_gradient ? grad_of(input) : loss;
      },
      {.mode = Mode::fused, .fallback = OnFallback::refuse});
  step(empty({32, 64}, here), empty({32, 64}, here));
  return orders_of(step.kernels());
}

}  // namespace

TEST_CASE("products load what is final before the wait, and multiply it if both factors are",
          "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  // Forward: all but the first product have their weight and bias early.
  std::vector<std::string> wanted{"wnfip", "biwnap", "biwnap", "biwnap", "biwnap"};
  // The last layer's input gradient; those before it, each beside the gradient of the next layer's
  // weight; the gradients of the first two weights, of which one waits.
  wanted.insert(wanted.end(),
                {"biwnap", "biwnap|nfpw", "biwnap|nfpw", "biwnap|nfpw", "bwnap|nfpw"});
  CHECK(products_of_step(5, false) == wanted);
  release_random_state();
  CHECK(fake.problem() == "");
}

TEST_CASE("few gradients of weights wait, if otherwise the step had a launch more", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  const auto alone = [](const std::vector<std::string>& orders) {
    return std::ranges::count_if(
        orders, [](const std::string& order) { return order.find('|') == std::string::npos; });
  };
  // With the input's gradient there are as many gradients of inputs as of weights.
  const std::vector<std::string> few = products_of_step(4, true), many = products_of_step(20, true);
  CHECK(few.size() == 4 + 4);
  CHECK(alone(few) == 4);
  CHECK(many.size() == 20 + 20);  // and the input's gradient, a call alone
  CHECK(alone(many) == 20 + 1);
  release_random_state();
  CHECK(fake.problem() == "");
}

}  // namespace brrr::test
