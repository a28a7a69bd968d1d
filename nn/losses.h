// Loss functions. Each returns the dtype of its first argument. Except for mse_loss, 16-bit floats
// are computed in f32 and rounded once.
#pragma once

#include <brrr/tensor/tensor.h>

namespace brrr::nn {

// How the losses of elements, or of rows, become one.
enum class Reduction { mean, sum, none };

// (x - target)²; the shapes are equal.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

// -log softmax(logits)[target] along the last dimension: logits [..., classes], integer targets
// [...]. label_smoothing is the weight of the uniform distribution in the target.
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     Reduction reduction = Reduction::mean, double label_smoothing = 0);

// -(target log p + (1 - target) log(1 - p)) with p = sigmoid(logits); the shapes are equal, targets
// are in [0, 1].
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        Reduction reduction = Reduction::mean);

}  // namespace brrr::nn
