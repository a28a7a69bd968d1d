// Products of f32 matrices in kernels of our own, for AVX2 and AVX-512 (matmul.cpp decides when).
#pragma once

#include <cstdint>
#include <string_view>

namespace brrr::on_cpu {

enum class VectorIsa { none, avx2, avx512 };

// The widest that the CPU has and BRRR_ISA does not exclude.
VectorIsa vector_isa();

// Which f32 products run here, for reports: "f32 products: avx512", or nothing.
std::string_view vector_products();

// A matrix in memory; strides in elements.
struct MatrixView {
  const float* data;
  std::int64_t row, column;
};

// The columns of the result that a panel should have a multiple of: those of a tile.
std::int64_t tile_columns(VectorIsa isa);

// c = a b, where c's rows are contiguous, plus `bias` in each row unless it is null. Each element
// is one chain of fma along k, so its bits depend neither on how a product is cut into panels nor
// on the instruction set; the bias is added to the rounded sum. `isa` is not none.
void multiply_vectors(VectorIsa isa, std::int64_t m, std::int64_t n, std::int64_t k, MatrixView a,
                      MatrixView b, float* c, std::int64_t c_row, const float* bias = nullptr);

}  // namespace brrr::on_cpu
