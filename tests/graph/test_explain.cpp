// The numbers of the host that explain() lists as the same in every replay.
#include <string>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/nn/mlp.h"
#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"

using namespace brrr;

TEST_CASE("a number that a loop repeats is listed once, with how often", "[compile]") {
  int rounds = 6;
  auto step = compile([&](const Tensor& x) {
    Tensor y = x + 3.0;
    for (int i = 0; i < rounds; ++i) y = y * 0.5;
    return y;
  });
  step(ones({4}));
  const std::string text = step.explain();
  const std::size_t half = text.find("operand 1 of mul is 0.5 (at ");
  REQUIRE(half != std::string::npos);
  CHECK(text.find("operand 1 of mul", half + 1) == std::string::npos);
  CHECK(text.substr(half, text.find('\n', half) - half).ends_with("), 6 times"));
  const std::size_t three = text.find("operand 1 of add is 3 (at ");
  REQUIRE(three != std::string::npos);
  CHECK(text.substr(three, text.find('\n', three) - three).ends_with(")"));
}

TEST_CASE("a graph names parameters, gradients and modules as the user does", "[compile]") {
  nn::MLP model({3, 4, 2});
  auto step = compile([&](const Tensor& x) {
    for (auto& [name, parameter] : model.named_parameters()) zero_grad(parameter);
    const Tensor loss = sum(square(model(x)));
    backward(loss);
    return loss;
  });
  step(ones({2, 3}));
  const std::string text = step.graph_text();
  CHECK_THAT(text, Catch::Contains("mlp.layers.0.weight f32["));
  CHECK_THAT(text, Catch::Contains("mlp.layers.1.bias f32[2]"));
  CHECK_THAT(text, Catch::Contains("# mlp.layers.1, "));
  CHECK_THAT(text, Catch::Contains("gradient of mlp.layers.0.weight: %"));
  CHECK_THAT(text, !Catch::Contains("captured"));
  // Dimensions are a set, and files are named from the current directory.
  CHECK_THAT(text, Catch::Contains("dims={0, 1}"));
  CHECK_THAT(text, Catch::Contains("test_explain.cpp:"));
}
