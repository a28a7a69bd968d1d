// Examples in host memory: row i of the inputs goes with row i of the targets.
#pragma once

#include <cstdint>
#include <string>

#include <brrr/tensor/tensor.h>

namespace brrr::data {

struct Dataset {
  Tensor inputs, targets;  // on the CPU, contiguous, as many rows each

  std::int64_t size() const { return inputs.size(0); }
};

// Throws unless the two are a dataset; makes them contiguous and brings them to the CPU.
Dataset make_dataset(const Tensor& inputs, const Tensor& targets);

// Two .npy files.
Dataset load_npy_dataset(const std::string& inputs, const std::string& targets);
// Two idx files as MNIST has them: images of bytes become f32 in [0, 1], labels i64.
Dataset load_idx_dataset(const std::string& images, const std::string& labels);

}  // namespace brrr::data
