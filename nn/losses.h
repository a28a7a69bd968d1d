// Losses. Each has the type of its first argument; those of 16-bit floats are computed in f32, but
// for mse_loss, and rounded once.
#pragma once

#include <brrr/tensor/tensor.h>

namespace brrr::nn {

// Of the losses of the elements, or of the rows.
enum class Reduction { mean, sum, none };

// (x - target)², of equal shapes.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

// -log softmax(logits)[target] along the last dimension: logits of [..., classes], targets of
// integers [...]. Smoothing mixes that much of the uniform distribution into the target.
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     Reduction reduction = Reduction::mean, double label_smoothing = 0);

// -(target log p + (1 - target) log(1 - p)) with p = sigmoid(logits), of equal shapes; targets may
// be anything from 0 to 1.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        Reduction reduction = Reduction::mean);

}  // namespace brrr::nn
