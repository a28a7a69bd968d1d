// Parameters that get gradients and that no optimizer updates are named once; gradients that
// somebody uses are not.
#include <algorithm>
#include <string>
#include <vector>

#include "brrr/brrr.h"
#include "tests/harness/captured_stderr.h"
#include "tests/harness/catch.h"

using namespace brrr;
using brrr::test::stderr_of;

namespace {

struct Net : nn::Module {
  nn::Linear first{2, 3}, second{3, 1};
  explicit Net(bool with_second) : Module("net") {
    child("first", first);
    if (with_second) child("second", second);
  }
  Tensor forward(const Tensor& x) override { return second(tanh(first(x))); }
};

struct Scaled : nn::Module {
  nn::Linear first{2, 1};
  Tensor scale = requires_grad_(ones({1}));
  Scaled() : Module("scaled") { child("first", first); }
  Tensor forward(const Tensor& x) override { return first(x) * scale; }
};

Tensor inputs() { return ones({4, 2}); }

void steps(nn::Module& model, optim::Optimizer& optimizer, int count) {
  for (int i = 0; i < count; ++i) {
    optimizer.zero_grad();
    backward(sum(square(model(inputs()))));
    optimizer.step();
  }
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("a child that was not registered is named by the first step, once", "[untrained]") {
  Net net(false);
  optim::Optimizer optimizer(net, optim::sgd(0.1));
  const std::string text = stderr_of([&] { steps(net, optimizer, 5); });
  CHECK(text ==
        "[Optimizer::step] no optimizer updates linear.bias f32[1], linear.weight f32[1, 3], which "
        "got a gradient: register it with parameter() or its module with child() before the "
        "optimizer is made, or exclude it with requires_grad_(x, false)\n");
  Net whole(true);
  optim::Optimizer second(whole, optim::sgd(0.1));
  CHECK(stderr_of([&] { steps(whole, second, 5); }) == "");
}

TEST_CASE("a child that was not registered is named in compiled steps", "[untrained]") {
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    Net net(false);
    optim::Optimizer optimizer(net, optim::sgd(0.1));
    auto step = compile([&] { steps(net, optimizer, 1); }, {.mode = mode});
    const std::string text = stderr_of([&] {
      for (int i = 0; i < 4; ++i) step();
    });
    CHECK_THAT(
        text, Catch::Contains("no optimizer updates linear.bias f32[1], linear.weight f32[1, 3],"));
    CHECK(text.find("no optimizer") == text.rfind("no optimizer"));
  }
}

TEST_CASE("a leaf that was not registered is named when its gradient only grows", "[untrained]") {
  Scaled model;
  optim::Optimizer optimizer(model, optim::sgd(0.1));
  CHECK(stderr_of([&] { steps(model, optimizer, 1); }) == "");
  const std::string text = stderr_of([&] { steps(model, optimizer, 5); });
  CHECK_THAT(text,
             Catch::StartsWith("[Optimizer::step] no optimizer updates a leaf f32[1], which"));
  CHECK(lines_of(text) == 1);
}

TEST_CASE("a parameter that was assigned after packing is named once", "[untrained]") {
  for (const bool with_gradient : {false, true}) {
    Net net(true);
    optim::Optimizer optimizer(net, optim::sgd(0.1));
    steps(net, optimizer, 2);
    net.first.weight = with_gradient ? requires_grad_(ones({3, 2})) : ones({3, 2});
    const std::string text = stderr_of([&] { steps(net, optimizer, 6); });
    CHECK_THAT(text, Catch::Contains("net.first.weight"));
    CHECK(lines_of(text) == 1);
  }
  Net net(true);
  nn::Parameters packed(net);
  optim::Optimizer optimizer(packed, optim::sgd(0.1));
  net.second.bias = zeros({1});
  CHECK(stderr_of([&] { steps(net, optimizer, 6); }) ==
        "[parameters] net.second.bias was assigned after the module's parameters had been packed "
        "and is not trained: write into it with copy_, or assign before making the optimizer\n");
}

TEST_CASE("gradients that somebody uses are not named", "[untrained]") {
  CHECK(stderr_of([] {
          // A part that is frozen.
          Net net(false);
          for (Tensor* each : {&net.second.weight, &net.second.bias}) requires_grad_(*each, false);
          optim::Optimizer optimizer(net, optim::sgd(0.1));
          steps(net, optimizer, 4);
        }) == "");
  CHECK(stderr_of([] {
          // Two optimizers, whose losses go through both modules.
          nn::Linear generator(2, 2), judge(2, 1);
          optim::Optimizer of_generator(generator, optim::sgd(0.1)),
              of_judge(judge, optim::sgd(0.1));
          for (int i = 0; i < 4; ++i) {
            of_generator.zero_grad();
            backward(mean(judge(generator(inputs()))));
            of_generator.step();
            of_judge.zero_grad();
            backward(mean(judge(no_grad([&] { return generator(inputs()); }))));
            of_judge.step();
          }
        }) == "");
}

TEST_CASE("gradients of leaves that are not packed are not named", "[untrained]") {
  CHECK(stderr_of([] {
          // Unpacked leaves of a second optimizer.
          nn::Linear packed(2, 2), unpacked(2, 1);
          optim::Optimizer first(packed, optim::sgd(0.1));
          optim::Optimizer second({unpacked.weight, unpacked.bias}, optim::sgd(0.1));
          for (int i = 0; i < 4; ++i) {
            backward(mean(unpacked(packed(inputs()))));
            first.step();
            second.step();
            first.zero_grad();
            second.zero_grad();
          }
        }) == "");
  CHECK(stderr_of([] {
          // An input whose gradient is read after the step, kept or new in each.
          Net net(true);
          optim::Optimizer optimizer(net, optim::sgd(0.1));
          Tensor kept = requires_grad_(inputs());
          for (int i = 0; i < 4; ++i) {
            const Tensor x = requires_grad_(inputs());
            backward(sum(net(kept) + net(x)));
            optimizer.step();
            CHECK(grad_of(kept).defined());
            zero_grad(kept);
          }
        }) == "");
  CHECK(stderr_of([] {
          // A module that is trained by hand, and gradients that are accumulated over batches.
          nn::Linear first(2, 2), by_hand(2, 1);
          optim::Optimizer optimizer(first, optim::sgd(0.1));
          for (int i = 0; i < 4; ++i) {
            for (int batch = 0; batch < 3; ++batch) backward(mean(by_hand(first(inputs()))));
            for (auto& [name, tensor] : by_hand.named_parameters()) {
              const NoGrad constant;
              sub_(tensor, grad_of(tensor) * 0.1);
              zero_grad(tensor);
            }
            optimizer.step();
            optimizer.zero_grad();
          }
        }) == "");
}

TEST_CASE("the memory of a leaf whose gradient nobody reads is freed with it", "[untrained]") {
  nn::Linear model(2, 1);
  optim::Optimizer optimizer(model, optim::sgd(0.1));
  CHECK(stderr_of([&] {
          for (int i = 0; i < 100; ++i) {
            backward(sum(model(requires_grad_(inputs()))));
            optimizer.step();
          }
        }) == "");
}
