#include "nn/norm.h"

namespace brrr::nn {

LayerNorm::LayerNorm(std::int64_t width, Options options, double eps)
    : Module("layer_norm"),
      weight(ones({width}, options)),
      bias(zeros({width}, options)),
      eps_(eps) {
  parameter("weight", weight);
  parameter("bias", bias);
}

Tensor LayerNorm::forward(const Tensor& x) {
  expect_input(x, weight.size(0), weight);
  return layer_norm(x, 1, weight, bias, eps_);
}

RMSNorm::RMSNorm(std::int64_t width, Options options, double eps)
    : Module("rms_norm"), weight(ones({width}, options)), eps_(eps) {
  parameter("weight", weight);
}

Tensor RMSNorm::forward(const Tensor& x) {
  expect_input(x, weight.size(0), weight);
  return rms_norm(x, 1, weight, eps_);
}

}  // namespace brrr::nn
