#include <brrr/brrr.h>

#include "tests/catch.h"

using namespace brrr;

TEST_CASE("gradients of a chain, a branch and a broadcast", "[autograd]") {
  Tensor w = requires_grad_(tensor({1, 2, 3}));
  backward(sum(square(w)));
  CHECK(to_vector<float>(grad(w)) == std::vector<float>{2, 4, 6});
  backward(sum(w * 3 + w));
  CHECK(to_vector<float>(grad(w)) == std::vector<float>{6, 8, 10});
  zero_grad(w);
  CHECK_FALSE(grad(w).defined());
  const Tensor x = ones({4, 3});
  backward(sum(x * w));
  CHECK(to_vector<float>(grad(w)) == std::vector<float>{4, 4, 4});
}

TEST_CASE("second order", "[autograd]") {
  Tensor x = requires_grad_(tensor<double>(std::vector<double>{2.0}, {1}));
  const Tensor y = x * x * x;
  const Tensor first = grad(y, x, {.create_graph = true});
  CHECK(item(first) == 12);
  const Tensor second = grad(first, x, {.create_graph = true});
  CHECK(item(second) == 12);
  CHECK(item(grad(second, x)) == 6);
}

TEST_CASE("gradcheck of a small network", "[autograd]") {
  manual_seed(1);
  const Options wide{f64, cpu};
  Tensor w = requires_grad_(randn({4, 3}, wide)), b = requires_grad_(randn({4}, wide)),
         x = requires_grad_(randn({5, 3}, wide));
  const auto network = [](std::span<const Tensor> in) {
    return std::vector<Tensor>{mean(square(gelu_tanh(linear(in[2], in[0], in[1]))))};
  };
  const GradcheckResult result = gradcheck(network, {w, b, x}, {.second_order = true});
  INFO(result.message);
  CHECK(result);
}

TEST_CASE("a long chain neither overflows backward nor its end", "[autograd]") {
  Tensor x = requires_grad_(ones({1}));
  {
    Tensor y = x;
    for (int i = 0; i < 100000; ++i) y = y * 1.0;
    backward(sum(y), {.retain_graph = true});
    CHECK(item(grad(x)) == 1);
  }
}
