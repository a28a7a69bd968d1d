// The numbers of the host that explain() lists as the same in every replay.
#include <string>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
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

TEST_CASE("a fused step shows its kernels", "[compile][fuse]") {
  auto step = compile(
      [](const Tensor& x, const Tensor& w) {
        const Tensor y = tanh(x * 2.0);
        return std::pair(y, sum(matmul(y, w) + 1.0));
      },
      {.mode = Mode::fused});
  step(ones({2, 3}), ones({3, 4}));
  const std::vector<GeneratedKernel> kernels = step.kernels();
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0].calls == std::vector<std::string>{"mul", "tanh"});
  CHECK(kernels[0].reads == std::vector<std::string>{"input0 f32[2, 3]"});
  CHECK(kernels[0].writes.size() == 1);
  CHECK(kernels[0].bytes_read == 24);
  CHECK(kernels[0].bytes_written == 24);
  CHECK(kernels[0].flops > 0);
  CHECK_THAT(kernels[0].line, Catch::Contains("test_explain.cpp:"));
  CHECK_THAT(kernels[0].source, Catch::Contains("tanh(a)"));
  CHECK_THAT(kernels[1].source, !Catch::Contains("tanh(a)"));
  CHECK(kernels[0].registers == -1);  // of a device
  CHECK_THAT(step.explain(),
             Catch::Contains("  2 generated kernels:\n    0 [mul, tanh]: reads 24 bytes, writes 24 "
                             "bytes, 12 flop, predicted "));
  auto graph = compile([](const Tensor& x) { return tanh(x * 2.0); });
  graph(ones({3}));
  CHECK(graph.kernels().empty());
  CHECK_THAT(graph.explain(), !Catch::Contains("generated"));
}

TEST_CASE("a compiled step lists its launches with their predicted costs", "[compile][fuse]") {
  const auto function = [](const Tensor& x, const Tensor& w) {
    return sum(matmul(tanh(x * 2.0), w) + 1.0);
  };
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    auto step = compile(function, {.mode = mode});
    step(ones({2, 3}), ones({3, 4}));
    const std::vector<LaunchCost> launches = step.launches();
    CHECK(launches.size() == static_cast<std::size_t>(step.report().entries.at(0).nodes));
    StepTime sum_of_launches;
    int products = 0;
    for (const LaunchCost& launch : launches) {
      CHECK_FALSE(launch.name.empty());
      CHECK(launch.bytes > 0);
      CHECK(launch.predicted.ps() > 0);
      sum_of_launches += launch.predicted;
      if (launch.product.empty()) continue;
      ++products;
      CHECK(launch.product == "f32");
      CHECK(launch.flops >= 2 * 2 * 3 * 4);
    }
    CHECK(products == 1);
    // On the CPU launches run one after another; a replay adds its own overhead.
    const StepTime predicted = step.report().entries[0].predicted;
    CHECK(sum_of_launches.compute_ps == predicted.compute_ps);
    CHECK(sum_of_launches.bandwidth_ps == predicted.bandwidth_ps);
    CHECK(sum_of_launches.overhead_ps <= predicted.overhead_ps);
  }
  auto fused = compile(function, {.mode = Mode::fused});
  fused(ones({2, 3}), ones({3, 4}));
  CHECK(fused.launches()[0].name == "mul, tanh");
  CHECK(fused.launches()[0].bytes == 48);
  CHECK(fused.launches()[0].result == "f32[2, 3]");
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
  CHECK_THAT(text,
             Catch::Contains("gradient of mlp.layers.0.weight: mlp.layers.0.weight.grad f32["));
  CHECK_THAT(text, !Catch::Contains("captured"));
  // A gradient's call is said to be of the forward call, on whose line it is.
  const auto line_with = [&text](const std::string& part) {
    const std::size_t at = text.find(part);
    REQUIRE(at != std::string::npos);
    const std::size_t from = text.rfind('\n', at) + 1;
    return text.substr(from, text.find('\n', at) - from);
  };
  const auto place_of = [](const std::string& line) { return line.substr(line.rfind(", ")); };
  const std::string forward = line_with("mlp.layers.1.bias f32[2])");
  const std::string gradient = line_with("  mlp.layers.1.weight.grad f32[");
  CHECK_THAT(forward, Catch::Contains("  # mlp.layers.1, "));
  CHECK_THAT(gradient, Catch::Contains("  # gradient of mlp.layers.1, "));
  CHECK(place_of(gradient) == place_of(forward));
  CHECK_THAT(line_with(" = mul("), Catch::Contains("  # gradient of square, "));
  // Dimensions are a set, and files are named from the current directory.
  CHECK_THAT(text, Catch::Contains("dims={0, 1}"));
  CHECK_THAT(text, Catch::Contains("test_explain.cpp:"));
}

TEST_CASE("a graph names packed parameters, their gradients and optimizer state", "[compile]") {
  nn::MLP model({3, 4, 2});
  optim::Optimizer optimizer(model, optim::adam(optim::Coefficient(0.1)));
  auto step = compile([&](const Tensor& x) {
    optimizer.zero_grad();
    const Tensor loss = sum(square(model(x)));
    backward(loss);
    optimizer.step();
    return detach(loss);
  });
  step(ones({2, 3}));
  const std::string text = step.graph_text();
  const auto part_between = [&text](const std::string& before, const std::string& after) {
    const std::size_t from = text.find(before) + before.size();
    return text.substr(from, text.find(after, from) - from);
  };
  const std::string packed = part_between("captured2 (", "): "),
                    parts = part_between(" = cat(", ")");
  for (const auto& [name, parameter] : model.named_parameters()) {
    CHECK_THAT(packed, Catch::Contains(name));
    CHECK_THAT(parts, Catch::Contains(name + ".grad f32["));
  }
  CHECK_THAT(
      text, Catch::Contains("  captured2 (" + packed.substr(0, packed.find(',')) + ", …) f32[26]"));
  for (const auto& [name, tensor] : optimizer.state_dict())
    CHECK_THAT(text, Catch::Contains("optimizer." + name + " f32["));
}
