// Products of f32 matrices in AVX-512, for CPUs whose BLAS has no kernels for it.
#pragma once

#include <cstdint>

namespace brrr::on_cpu {

// Whether the CPU has AVX-512 and BRRR_ISA does not exclude it.
bool has_avx512();

// Whether f32 products of at least 8 columns run here (matmul.cpp decides).
bool uses_avx512_products();

// A matrix in memory; strides in elements.
struct MatrixView {
  const float* data;
  std::int64_t row, column;
};

// c = a b, where c's rows are contiguous, plus `bias` in each row unless it is null. Each element
// is one chain of fma along k, so its bits do not depend on how a product is cut into panels; the
// bias is added to the rounded sum.
void multiply_avx512(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView a, MatrixView b,
                     float* c, std::int64_t c_row, const float* bias = nullptr);

}  // namespace brrr::on_cpu
