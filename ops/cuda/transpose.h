// Transposed copies of matrices.
#pragma once

#include <cstdint>

#include <brrr/tensor/cuda_stream.h>
#include <brrr/tensor/dtype.h>

namespace brrr::on_cuda {

// `from` has `cols` columns of `rows` adjacent elements; `to` gets `rows` columns of `cols`
// adjacent elements.
struct TransposeArgs {
  const void* from;
  void* to;
  std::int64_t rows, cols;
  std::int64_t from_leading, to_leading;
  std::int64_t from_batch, to_batch;  // from one matrix to the next
  std::int64_t batches;
};

void transpose_matrices(const TransposeArgs& args, DType dtype, cu::CudaStream& stream);

}  // namespace brrr::on_cuda
