// Copies of factors of TF32 products on CUDA: a transposition (ops/factor_copy.cpp says when they
// pay).
#include "brrr/dispatch/call.h"
#include "brrr/ops/cuda/transpose.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::on_cuda {

void factor_copy(const Call& call, Tensor* outputs) {
  const Tensor& x = call.input(0);
  if (x.numel() == 0) return;
  transpose_matrices({.from = x.data(),
                      .to = outputs[0].data(),
                      .rows = x.size(0),
                      .cols = x.size(1),
                      .from_leading = x.strides()[1],
                      .to_leading = outputs[0].strides()[0],
                      .from_batch = 0,
                      .to_batch = 0,
                      .batches = 1},
                     x.dtype(), cu::current_stream(x.device()));
}

}  // namespace brrr::on_cuda
