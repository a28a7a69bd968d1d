// Products of matrices as shapes and strides.
#pragma once

#include <brrr/ops/jit/matrix_product.h>

namespace brrr::testing {

// a with rows of k, b with rows of n, both without gaps.
inline jit::MatrixProduct row_major(std::int64_t m, std::int64_t n, std::int64_t k) {
  jit::MatrixProduct p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = {k, 1, {}};
  p.b = {n, 1, {}};
  p.d = {n, 1, {}};
  return p;
}
// The same with b's columns adjacent, as TF32 needs it.
inline jit::MatrixProduct both_along_k(std::int64_t m, std::int64_t n, std::int64_t k) {
  jit::MatrixProduct p = row_major(m, n, k);
  p.b = {1, k, {}};
  return p;
}
inline void add_batch(jit::MatrixProduct& p, std::int64_t size, std::int64_t a, std::int64_t b,
                      std::int64_t d) {
  p.batch.push_back(size);
  p.a.batch.push_back(a);
  p.b.batch.push_back(b);
  p.d.batch.push_back(d);
}

}  // namespace brrr::testing
