// x weightᵀ + bias.
#pragma once

#include <brrr/nn/module.h>
#include <brrr/ops/functions.h>

namespace brrr::nn {

class Linear : public Module {
 public:
  // Initialized as PyTorch's: uniform in ±1/√in.
  Linear(std::int64_t in, std::int64_t out, Options options = {}, bool bias = true);
  Tensor forward(const Tensor& x) override;

  Tensor weight;  // [out, in]
  Tensor bias;    // [out]; undefined if the layer has none
};

}  // namespace brrr::nn
