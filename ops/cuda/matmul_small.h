// Small products by a kernel of our own: a call of the library costs the host two launches' time,
// and a node of a graph two to five of the smallest kernel.
#pragma once

#include <cstdint>
#include <string>

#include <brrr/ops/cuda/launch.h>
#include <brrr/ops/cuda/matmul_layout.h>
#include <brrr/tensor/cuda_stream.h>

namespace brrr::on_cuda {

// Which products it is for, by type, shape and nothing else.
bool is_small(const MatrixProduct& product, DType dtype, bool tf32);

// How a kernel loads an operand: 16 bytes along the summed dimension k, two neighbours along m or
// n, or single elements, which is right for any strides.
enum class OperandLayout : std::uint8_t { k_contiguous, mn_contiguous, strided };

// The factors of one matrix of a product, as matmul_small.cu takes them.
struct SmallFactors {
  std::int64_t a_row, a_col, b_row, b_col;
  std::int32_t m, n, k;
};

// The parameters of the text; `ahead` chunks of the summed dimension are loaded at once.
struct SmallSchedule {
  DType dtype;
  OperandLayout a, b;
  int ahead;

  std::uint64_t key() const {
    return static_cast<std::uint64_t>(dtype) << 8 | static_cast<std::uint64_t>(a) << 4 |
           static_cast<std::uint64_t>(b) << 2 | static_cast<std::uint64_t>(ahead);
  }
};
SmallSchedule small_schedule(const SmallFactors& factors, DType dtype, const void* a,
                             std::int64_t a_batch, const void* b, std::int64_t b_batch);

// The text without an entry and SmallFactors, SmallFactors, and the text of a call.
std::string matmul_small_text(const SmallSchedule& schedule);
std::string_view small_factors_text();
std::string matmul_small_text_of_call(const SmallSchedule& schedule);

constexpr int kSmallThreads = 256;
Grid small_grid(const SmallFactors& factors, std::int64_t batches);

// d = a b, and `row` added to its rows unless it is null. f32 goes through TF32. Takes any strides,
// and any shape of one batch dimension at most whose results fit a grid; bits depend on the shape
// alone.
void multiply_small(const MatrixProduct& product, const Tensor& a, const Tensor& b,
                    const Tensor* row, Tensor& d, cu::CudaStream& stream);

}  // namespace brrr::on_cuda
