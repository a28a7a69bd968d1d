// Small products by a kernel of our own: a call of the library costs the host two launches' time,
// and a node of a graph two to five of the smallest kernel.
#pragma once

#include <cstdint>
#include <string>

#include <brrr/ops/cuda/matmul_layout.h>
#include <brrr/tensor/cuda_stream.h>

namespace brrr::on_cuda {

// Which products it is for, by type, shape and nothing else.
bool is_small(const MatrixProduct& product, DType dtype, bool tf32);

// How a kernel loads an operand: 16 bytes along the summed dimension k, two neighbours along m or
// n, or single elements, which is right for any strides.
enum class OperandLayout : std::uint8_t { k_contiguous, mn_contiguous, strided };

// The kernel's text; `ahead` chunks of the summed dimension are loaded at once.
std::string matmul_small_text(DType dtype, OperandLayout a, OperandLayout b, int ahead);

// d = a b, and `row` added to its rows unless it is null. f32 goes through TF32. Takes any strides,
// and any shape of one batch dimension at most whose results fit a grid; bits depend on the shape
// alone.
void multiply_small(const MatrixProduct& product, const Tensor& a, const Tensor& b,
                    const Tensor* row, Tensor& d, cu::CudaStream& stream);

}  // namespace brrr::on_cuda
