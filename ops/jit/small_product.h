// Small products by a kernel of our own: a call of the library costs the host two launches' time,
// and a node of a graph two to five of the smallest kernel. Which products it is for, how it loads
// their factors, and its source (ops/cuda/matmul_small.cu with the types and constants of a
// schedule).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/ops/jit/matrix_product.h>
#include <brrr/tensor/dtype.h>

namespace brrr::jit {

// Which products it is for, by type, shape and nothing else. The kernel takes any batch.
bool is_small(const MatrixProduct& product, DType dtype, bool tf32);

// How a kernel loads an operand: 16 bytes along the summed dimension k, two neighbours along m or
// n, or single elements, which is right for any strides. What a factor is computed from may also
// have one element for each line.
enum class OperandLayout : std::uint8_t { k_contiguous, mn_contiguous, strided, one_per_line };

// The factors of one matrix of a product, as matmul_small.cu takes them.
struct SmallFactors {
  std::int64_t a_row, a_col, b_row, b_col;
  std::int32_t m, n, k;
};
SmallFactors small_factors(const MatrixProduct& product);

// The parameters of the source; `ahead` chunks of the summed dimension are loaded at once.
struct SmallSchedule {
  DType dtype;
  OperandLayout a, b;
  int ahead;

  std::uint64_t key() const {
    return static_cast<std::uint64_t>(dtype) << 8 | static_cast<std::uint64_t>(a) << 4 |
           static_cast<std::uint64_t>(b) << 2 | static_cast<std::uint64_t>(ahead);
  }
};

// Of the addresses of the factors, in bytes: powers of two. More than 16 makes no difference.
struct FactorAlignment {
  int a = 16, b = 16;
};
SmallSchedule small_schedule(const MatrixProduct& product, DType dtype, FactorAlignment alignment);
// The layouts of inputs from which a factor of type `dtype` is computed. A lane has neighbouring
// lines of all of them, or of none; `types` and `alignments` are those of the inputs.
std::vector<OperandLayout> layouts_of(std::span<const FactorLines> inputs,
                                      std::span<const DType> types, std::span<const int> alignments,
                                      DType dtype);

// Blocks: of tiles of 16 x 16 results.
constexpr int kSmallThreads = 256;
struct SmallGrid {
  std::int64_t columns = 1, rows = 1, batches = 1;
  std::int64_t blocks() const { return columns * rows * batches; }
};
SmallGrid small_grid(const MatrixProduct& product);

std::string_view name_of(OperandLayout layout);  // in the source

// The source without an entry, SmallFactors and OperandLayout; these two; and the source of a call.
std::string matmul_small_source(DType dtype, int ahead);
std::string_view small_factors_source();
std::string matmul_small_source_of_call(const SmallSchedule& schedule);

}  // namespace brrr::jit
