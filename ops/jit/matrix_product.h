// A matrix product as shapes and strides: what schedules of products are chosen from, and what the
// library's calls are made of (ops/cuda/matmul_layout.h).
#pragma once

#include <cstdint>

#include <brrr/tensor/dims.h>

namespace brrr::jit {

// Strides in elements. `batch` has one entry for each dimension of MatrixProduct::batch; 0 where
// broadcast.
struct MatrixStrides {
  std::int64_t row = 0, col = 0;
  Dims batch;
};

// d[batch][m][n] = sum over k of a[batch][m][k] * b[batch][k][n]
struct MatrixProduct {
  std::int64_t m = 0, n = 0, k = 0;
  Dims batch;  // no dimension of size 1, and neighbours merged wherever all three tensors allow it
  MatrixStrides a, b, d;

  std::int64_t batches() const {  // matrices of the batch
    std::int64_t count = 1;
    for (const std::int64_t size : batch) count *= size;
    return count;
  }
};

// A factor as lines along which is summed: rows of a, columns of b. Points into the product.
struct FactorLines {
  std::int64_t lines, depth;
  std::int64_t line_stride, depth_stride;
  const Dims* batch_strides;
};
inline FactorLines lines_of_a(const MatrixProduct& p) {
  return {p.m, p.k, p.a.row, p.a.col, &p.a.batch};
}
inline FactorLines lines_of_b(const MatrixProduct& p) {
  return {p.n, p.k, p.b.col, p.b.row, &p.b.batch};
}

}  // namespace brrr::jit
