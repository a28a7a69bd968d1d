#include "brrr/nn/norm.h"

#include "brrr/nn/init.h"

namespace brrr::nn {

LayerNorm::LayerNorm(std::int64_t width, Options options, double eps)
    : Module("layer_norm"),
      weight(init::full_parameter("layer_norm", {width}, 1, options)),
      bias(init::full_parameter("layer_norm", {width}, 0, options)),
      eps_(eps) {
  parameter("weight", weight);
  parameter("bias", bias);
}

Tensor LayerNorm::forward(const Tensor& x) {
  expect_input(x, weight.size(0), weight);
  return layer_norm(x, 1, weight, bias, eps_);
}

RMSNorm::RMSNorm(std::int64_t width, Options options, double eps)
    : Module("rms_norm"), weight(init::full_parameter("rms_norm", {width}, 1, options)), eps_(eps) {
  parameter("weight", weight);
}

Tensor RMSNorm::forward(const Tensor& x) {
  expect_input(x, weight.size(0), weight);
  return rms_norm(x, 1, weight, eps_);
}

}  // namespace brrr::nn
