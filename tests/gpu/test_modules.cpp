// Modules on a GPU: made there by default, or moved there; either way they train.
#include <functional>
#include <memory>

#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;
using namespace brrr::testing;

namespace {

using Make = std::function<std::unique_ptr<nn::Module>()>;
const std::vector<std::pair<const char*, Make>>& modules() {
  static const std::vector<std::pair<const char*, Make>> list = {
      {"Linear", [] { return std::make_unique<nn::Linear>(2, 3); }},
      {"MLP",
       [] {
         return std::make_unique<nn::MLP>(std::vector<std::int64_t>{2, 3});
       }},
      {"MLP with options",
       [] {
         return std::make_unique<nn::MLP>(std::vector<std::int64_t>{2, 3},
                                          nn::MLPOptions{.activation = nn::Activation::relu});
       }},
      {"ResidualBlock", [] { return std::make_unique<nn::ResidualBlock>(4); }},
      {"Embedding", [] { return std::make_unique<nn::Embedding>(3, 2); }},
      {"LayerNorm", [] { return std::make_unique<nn::LayerNorm>(3); }},
      {"RMSNorm", [] { return std::make_unique<nn::RMSNorm>(3); }},
      {"MultiHeadAttention", [] { return std::make_unique<nn::MultiHeadAttention>(4, 2); }},
      {"TransformerBlock", [] { return std::make_unique<nn::TransformerBlock>(4, 2); }},
      {"Transformer",
       [] {
         return std::make_unique<nn::Transformer>(nn::TransformerSizes{
             .vocabulary = 3, .length = 2, .width = 4, .heads = 2, .layers = 1});
       }},
  };
  return list;
}

}  // namespace

TEST_CASE("modules are made on the default device, or move there", "[nn]") {
  for (const auto& [name, make] : modules()) {
    INFO(name);
    std::unique_ptr<nn::Module> moved = make(), made;
    {
      const DeviceGuard guard(kGpu);
      made = make();
    }
    for (const auto& entry : moved->named_tensors()) CHECK(entry.tensor->device() == cpu);
    backward(sum(*moved->named_tensors()[0].tensor));
    moved->to(kGpu);
    CHECK(grad_of(*moved->named_tensors()[0].tensor).device() == kGpu);
    for (nn::Module* module : {made.get(), moved.get()}) {
      REQUIRE(!module->named_tensors().empty());
      for (const auto& entry : module->named_tensors()) {
        CHECK(entry.tensor->device() == kGpu);
        CHECK(requires_grad(*entry.tensor));
      }
    }
  }
}

TEST_CASE("a model that moved to the GPU and to bf16 trains there", "[nn]") {
  manual_seed(1);
  nn::MLP model({8, 16, 4}, {.activation = nn::Activation::silu});
  model.to(kGpu, bf16);
  optim::Optimizer optimizer(model, optim::adam(1e-2));
  const Tensor x = randn({32, 8}, {.dtype = bf16, .device = kGpu});
  auto step = compile([&] {
    optimizer.zero_grad();
    const Tensor loss = mean(square(model(x)));
    backward(loss);
    optimizer.step();
    return detach(loss);
  });
  const double first = item(step());
  for (int i = 0; i < 20; ++i) step();
  CHECK(item(step()) < first);
}
