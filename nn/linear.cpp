#include "brrr/nn/linear.h"

#include <cmath>

#include "brrr/nn/init.h"

namespace brrr::nn {

Linear::Linear(std::int64_t in, std::int64_t out, Options options, bool bias)
    : Module("linear"), weight(init::empty_parameter("linear", {out, in}, options)) {
  const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
  init::uniform_(weight, -bound, bound);
  parameter("weight", weight);
  if (!bias) return;
  this->bias = init::empty_parameter("linear", {out}, options);
  init::uniform_(this->bias, -bound, bound);
  parameter("bias", this->bias);
}

Tensor Linear::forward(const Tensor& x) {
  expect_input(x, weight.size(1), weight);
  return linear(x, weight, bias);
}

}  // namespace brrr::nn
