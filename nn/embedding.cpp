#include "brrr/nn/embedding.h"

#include "brrr/nn/init.h"

namespace brrr::nn {

Embedding::Embedding(std::int64_t count, std::int64_t width, Options options)
    : Module("embedding"), weight(init::empty_parameter("embedding", {count, width}, options)) {
  init::normal_(weight);
  parameter("weight", weight);
}

Tensor Embedding::forward(const Tensor& index) {
  if (!index.defined() || category_of(index.dtype()) != Category::integer) {
    refuse_input("of integers", index);
  }
  return embedding(weight, index);
}

}  // namespace brrr::nn
