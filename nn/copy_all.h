// Writing a list of tensors, all of it or nothing.
#pragma once

#include <span>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::nn {

// Each value into the target at its place, from whatever device; types and shapes agree. What may
// fail comes before the first write, and a value that lies in a target's memory is read before it.
void copy_all(std::span<const Tensor> targets, std::vector<Tensor> values);

}  // namespace brrr::nn
