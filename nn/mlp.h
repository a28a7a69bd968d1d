// Linear layers with gelu_tanh between them.
#pragma once

#include <deque>
#include <vector>

#include <brrr/nn/linear.h>

namespace brrr::nn {

class MLP : public Module {
 public:
  // {2, 64, 64, 3} is three layers from 2 features to 3.
  explicit MLP(const std::vector<std::int64_t>& widths, Options options = {});
  Tensor forward(const Tensor& x) override;

  std::deque<Linear> layers;
};

}  // namespace brrr::nn
