// Examples in host memory: row i of the inputs belongs to row i of the targets.
#pragma once

#include <cstdint>
#include <string>

#include <brrr/tensor/tensor.h>

namespace brrr::data {

struct Dataset {
  Tensor inputs, targets;  // on the CPU, contiguous, with equal numbers of rows

  std::int64_t size() const { return inputs.size(0); }
};

// Copies to the CPU and makes contiguous where needed; throws unless the rows match.
Dataset make_dataset(const Tensor& inputs, const Tensor& targets);

// Two .npy files.
Dataset load_npy_dataset(const std::string& inputs, const std::string& targets);
// Two idx files in MNIST's form: byte images become f32 in [0, 1], labels i64.
Dataset load_idx_dataset(const std::string& images, const std::string& labels);

}  // namespace brrr::data
