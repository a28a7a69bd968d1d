// Normalization over the last dimension: LayerNorm and RMSNorm.
#pragma once

#include <brrr/nn/module.h>
#include <brrr/ops/functions.h>

namespace brrr::nn {

class LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t width, Options options = {}, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;  // [width]; ones and zeros

 private:
  double eps_;
};

class RMSNorm : public Module {
 public:
  explicit RMSNorm(std::int64_t width, Options options = {}, double eps = 1e-6);
  Tensor forward(const Tensor& x) override;

  Tensor weight;  // [width]; ones

 private:
  double eps_;
};

}  // namespace brrr::nn
