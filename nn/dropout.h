// While training, zeroes each element with probability p and scales the others by 1 / (1 - p).
#pragma once

#include <brrr/nn/module.h>
#include <brrr/ops/functions.h>

namespace brrr::nn {

class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) override { return training() ? dropout(x, p_) : x; }

 private:
  double p_;
};

}  // namespace brrr::nn
