#include "brrr/nn/data/dataset.h"

#include "brrr/autograd/autograd.h"
#include "brrr/io/npy.h"
#include "brrr/io/strided_bytes.h"
#include "brrr/nn/data/idx.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::data {

Dataset make_dataset(const Tensor& inputs, const Tensor& targets) {
  const bool rows = inputs.defined() && targets.defined() && inputs.rank() > 0 &&
                    targets.rank() > 0 && inputs.size(0) == targets.size(0) && inputs.size(0) > 0;
  if (!rows) {
    fail("[dataset] expected inputs and targets of as many rows, at least 1, got {} and {}",
         inputs.describe(), targets.describe());
  }
  return {detach(contiguous_on_host(inputs, "dataset")),
          detach(contiguous_on_host(targets, "dataset"))};
}

Dataset load_npy_dataset(const std::string& inputs, const std::string& targets) {
  return make_dataset(load_npy(inputs), load_npy(targets));
}

Dataset load_idx_dataset(const std::string& images, const std::string& labels) {
  Tensor pixels = cast(load_idx(images), f32);
  div_(pixels, 255);
  return make_dataset(pixels, cast(load_idx(labels), i64));
}

}  // namespace brrr::data
