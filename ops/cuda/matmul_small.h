// Small products by a kernel of our own: a call of the library costs the host two launches' time,
// and a node of a graph two to five of the smallest kernel.
#pragma once

#include <cstdint>

#include <brrr/ops/cuda/matmul_layout.h>
#include <brrr/tensor/cuda_stream.h>

namespace brrr::on_cuda {

// Which products it is for, by type, shape and nothing else.
bool is_small(const MatrixProduct& product, DType dtype, bool tf32);

// How a kernel reads an operand, seen as lines that are summed along: 16 bytes of a line at once,
// two neighbouring lines at once, or single elements, which is right for any strides.
enum class Lies : std::uint8_t { along, across, strided };

// d = a b, and `row` added to its rows unless it is null. f32 goes through TF32. Takes any strides,
// and any shape of one batch dimension at most whose results fit a grid; bits depend on the shape
// alone.
void multiply_small(const MatrixProduct& product, const Tensor& a, const Tensor& b,
                    const Tensor* row, Tensor& d, cu::CudaStream& stream);

}  // namespace brrr::on_cuda
