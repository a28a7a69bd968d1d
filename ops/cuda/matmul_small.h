// Launches of small products as calls (ops/jit/small_product.h, matmul_small.cu).
#pragma once

#include <brrr/ops/cuda/matmul_layout.h>
#include <brrr/ops/jit/small_product.h>
#include <brrr/tensor/cuda_stream.h>

namespace brrr::on_cuda {

// d = a b, and `row` added to its rows unless it is null. f32 goes through TF32. Takes any strides,
// and any shape of one batch dimension at most whose results fit a grid; bits depend on the shape
// alone.
void multiply_small(const MatrixProduct& product, const Tensor& a, const Tensor& b,
                    const Tensor* row, Tensor& d, cu::CudaStream& stream);

}  // namespace brrr::on_cuda
