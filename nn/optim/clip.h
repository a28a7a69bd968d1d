// Gradient clipping, by value and by global norm.
#pragma once

#include <brrr/nn/optim/transformation.h>

namespace brrr::optim {

// Clamps each element to [-most, most].
Transformation clip(double most);

// Scales all updates by most / norm if their global Euclidean norm exceeds `most`. A norm that is
// not finite propagates to the updates. (PyTorch divides by norm + 1e-6.)
Transformation clip_by_global_norm(double most);

// The Euclidean norm over all elements of all tensors: 0-d, f32 or wider.
Tensor global_norm(std::span<const Tensor> tensors);

}  // namespace brrr::optim
