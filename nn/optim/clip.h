// Limits on the size of updates.
#pragma once

#include <brrr/nn/optim/transformation.h>

namespace brrr::optim {

// Each element to [-most, most].
Transformation clip(double most);

// Multiplies all updates by most / norm where their common Euclidean norm is above `most`. A norm
// that is not finite makes updates that are not: nothing hides it. (PyTorch divides by norm +
// 1e-6.)
Transformation clip_by_global_norm(double most);

// The Euclidean norm of all elements of all tensors together: 0-d, f32 or wider.
Tensor global_norm(std::span<const Tensor> tensors);

}  // namespace brrr::optim
