// A multilayer perceptron, and the pre-norm residual block around one.
#pragma once

#include <concepts>
#include <deque>
#include <vector>

#include <brrr/nn/activation.h>
#include <brrr/nn/linear.h>
#include <brrr/nn/norm.h>

namespace brrr::nn {

struct MLPOptions {
  DType dtype = f32;
  Device device = default_device();
  Activation activation = Activation::gelu_tanh;
};

class MLP : public Module {
 public:
  // {2, 64, 64, 3}: three layers, from 2 features to 3.
  explicit MLP(const std::vector<std::int64_t>& widths, const MLPOptions& options = {});
  // A template, so that {.device = ...} selects MLPOptions.
  template <std::same_as<Options> O>
  MLP(const std::vector<std::int64_t>& widths, const O& options)
      : MLP(widths, MLPOptions{.dtype = options.dtype, .device = options.device}) {}
  Tensor forward(const Tensor& x) override;

  std::deque<Linear> layers;

 private:
  Activation activation_;
};

// x + mlp(norm(x)); the MLP's hidden layer has four times the width.
class ResidualBlock : public Module {
 public:
  explicit ResidualBlock(std::int64_t width, const MLPOptions& options = {});
  template <std::same_as<Options> O>
  ResidualBlock(std::int64_t width, const O& options)
      : ResidualBlock(width, MLPOptions{.dtype = options.dtype, .device = options.device}) {}
  Tensor forward(const Tensor& x) override;

  LayerNorm norm;
  MLP mlp;
};

}  // namespace brrr::nn
