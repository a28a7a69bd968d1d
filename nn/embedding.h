// A lookup table: rows of a weight matrix by integer index.
#pragma once

#include <brrr/nn/module.h>
#include <brrr/ops/functions.h>

namespace brrr::nn {

class Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t width, Options options = {});  // standard normal
  // Integers of any shape; the result has one more dimension.
  Tensor forward(const Tensor& index) override;

  Tensor weight;  // [count, width]
};

}  // namespace brrr::nn
