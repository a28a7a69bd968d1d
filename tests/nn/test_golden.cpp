// Modules and losses against PyTorch: outputs, and gradients of inputs and parameters, in f64.
#include <filesystem>
#include <set>

#include "tests/harness/catch.h"
#include "tests/harness/nn_reference.h"
#include "tests/harness/skip.h"
#include "tests/harness/source_tree.h"

using namespace brrr;
using namespace brrr::test;

namespace {

const std::string kPath = testing::source_path("tests/golden/nn.safetensors");

using Named = std::vector<std::pair<std::string, Tensor>>;

// What of the file the test has asked for.
struct Golden {
  SafeTensors file = load_safetensors(kPath);
  std::set<std::string> asked_for = {};

  void check(const std::string& name, const Tensor& got) {
    asked_for.insert(name);
    INFO(name);
    const Tensor* expected = file.find(name);
    REQUIRE(expected);
    CHECK(difference_between(got, *expected) == "");
  }
  void check_case(const std::string& name, const Tensor& output, const Named& leaves) {
    check(name + "/output", output);
    std::vector<Tensor> inputs;
    for (const auto& [leaf, tensor] : leaves) inputs.push_back(tensor);
    const std::vector<Tensor> gradients =
        grad(std::span(&output, 1), inputs, {.gradients = {pattern(output.shape(), 0.3)}});
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      check(name + "/grad/" + leaves[i].first, gradients[i]);
    }
  }
  // A module of a floating input of this shape.
  void check_module(const std::string& name, nn::Module& module, const Dims& shape) {
    fill_with_patterns(module);
    const Tensor x = requires_grad_(pattern(shape, 0.1));
    Named leaves = module.named_parameters();
    leaves.emplace_back("input", x);
    check_case(name, module(x), leaves);
  }
  void check_tokens(const std::string& name, nn::Module& module, const Tensor& tokens) {
    fill_with_patterns(module);
    check_case(name, module(tokens), module.named_parameters());
  }
};

Tensor integers(const std::vector<std::int64_t>& values, const Dims& shape) {
  return tensor(values, shape);
}

void check_modules(Golden& golden) {
  nn::Linear linear(3, 4, kWide), without_bias(3, 4, kWide, false);
  golden.check_module("linear", linear, {5, 3});
  golden.check_module("linear_without_bias", without_bias, {2, 5, 3});
  nn::MLP mlp({3, 5, 4, 2}, kWide);
  golden.check_module("mlp", mlp, {6, 3});
  nn::LayerNorm layer_norm(6, kWide);
  golden.check_module("layer_norm", layer_norm, {2, 3, 6});
  nn::RMSNorm rms_norm(6, kWide);
  golden.check_module("rms_norm", rms_norm, {2, 3, 6});
  nn::MultiHeadAttention attention(8, 2, kWide);
  golden.check_module("attention", attention, {2, 5, 8});
  nn::TransformerBlock block(8, 2, kWide);
  golden.check_module("block", block, {2, 5, 8});
  nn::Embedding embedding(7, 4, kWide);
  golden.check_tokens("embedding", embedding, integers({0, 6, 2, 2, 2, 5}, {2, 3}));
  nn::Transformer transformer({.vocabulary = 7, .length = 5, .width = 8, .heads = 2, .layers = 2},
                              kWide);
  golden.check_tokens("transformer", transformer, integers({0, 6, 2, 3, 2, 2, 5, 1}, {2, 4}));
}

void check_attention(Golden& golden) {
  const Tensor query = requires_grad_(pattern({2, 3, 4}, 0.1)),
               key = requires_grad_(pattern({2, 5, 4}, 0.2)),
               value = requires_grad_(pattern({2, 5, 6}, 0.4));
  const Named leaves = {{"query", query}, {"key", key}, {"value", value}};
  const Tensor mask = tensor(std::vector<bool>{true, false, true, true, false,  //
                                               false, true, true, false, true,  //
                                               true, true, true, true, true},
                             {3, 5});
  golden.check_case("sdpa", nn::scaled_dot_product_attention(query, key, value), leaves);
  golden.check_case(
      "sdpa_masked",
      nn::scaled_dot_product_attention(query, key, value, {.mask = mask, .scale = 0.7}), leaves);
}

void check_losses(Golden& golden) {
  const Tensor x = requires_grad_(pattern({4, 5}, 0.1) * 4), likeness = pattern({4, 5}, 1.1),
               chances = likeness + 0.5, classes = integers({4, 0, 2, 2}, {4});
  const Named leaves = {{"input", x}};
  const std::pair<const char*, nn::Reduction> reductions[] = {
      {"mean", nn::Reduction::mean}, {"sum", nn::Reduction::sum}, {"none", nn::Reduction::none}};
  for (const auto& [name, how] : reductions) {
    const std::string end = std::string("/") + name;
    golden.check_case("mse" + end, nn::mse_loss(x, likeness, how), leaves);
    golden.check_case("cross_entropy" + end, nn::cross_entropy(x, classes, how), leaves);
    golden.check_case("cross_entropy_smoothed" + end, nn::cross_entropy(x, classes, how, 0.2),
                      leaves);
    golden.check_case("bce" + end, nn::binary_cross_entropy_with_logits(x, chances, how), leaves);
  }
}

}  // namespace

TEST_CASE("modules and losses agree with PyTorch", "[nn][golden]") {
  if (!std::filesystem::exists(kPath)) {
    testing::skip("there is no tests/golden/nn.safetensors; make_nn_golden.py makes it");
    return;
  }
  Golden golden;
  check_modules(golden);
  check_attention(golden);
  check_losses(golden);
  for (const auto& [name, tensor] : golden.file.tensors) {
    INFO(name);
    CHECK(golden.asked_for.contains(name));
  }
}
