#include "brrr/nn/mlp.h"

#include <fmt/format.h>

#include "brrr/tensor/fail.h"

namespace brrr::nn {

MLP::MLP(const std::vector<std::int64_t>& widths, const MLPOptions& options)
    : Module("mlp"), activation_(options.activation) {
  if (widths.size() < 2) fail("[mlp] expected at least 2 widths, got {}", widths.size());
  const Options here{.dtype = options.dtype, .device = options.device};
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    child(fmt::format("layers.{}", i), layers.emplace_back(widths[i], widths[i + 1], here));
  }
}

Tensor MLP::forward(const Tensor& x) {
  Tensor h = layers[0](x);
  for (std::size_t i = 1; i < layers.size(); ++i) h = layers[i](activate(activation_, h));
  return h;
}

ResidualBlock::ResidualBlock(std::int64_t width, const MLPOptions& options)
    : Module("residual"),
      norm(width, Options{.dtype = options.dtype, .device = options.device}),
      mlp({width, 4 * width, width}, options) {
  child("norm", norm);
  child("mlp", mlp);
}

Tensor ResidualBlock::forward(const Tensor& x) { return x + mlp(norm(x)); }

}  // namespace brrr::nn
