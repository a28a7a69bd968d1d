#include "brrr/nn/mlp.h"

#include <fmt/format.h>

#include "brrr/tensor/error.h"

namespace brrr::nn {

MLP::MLP(const std::vector<std::int64_t>& widths, Options options) : Module("mlp") {
  if (widths.size() < 2) {
    fail(fmt::format("[mlp] expected at least 2 widths, got {}", widths.size()));
  }
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    child(fmt::format("layers.{}", i), layers.emplace_back(widths[i], widths[i + 1], options));
  }
}

Tensor MLP::forward(const Tensor& x) {
  Tensor h = layers[0](x);
  for (std::size_t i = 1; i < layers.size(); ++i) h = layers[i](gelu_tanh(h));
  return h;
}

}  // namespace brrr::nn
