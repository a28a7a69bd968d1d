// The kernel of small matrix products (ops/cuda/matmul_small.cu) for the fake driver: f32, by
// loops.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tests/fake_cuda/driver.h"

namespace brrr::testing {

inline void define_small_product(FakeCuda& fake) {
  struct SmallProduct {  // as matmul_small.cpp has it
    const float* a;
    const float* b;
    float* d;
    const float* row;
    std::int64_t row_step, d_row, d_col, a_batch, b_batch, d_batch;
    std::int64_t a_row, a_col, b_row, b_col;
    std::int32_t m, n, k;
  };
  fake.define_kernel("matmul_small", {sizeof(SmallProduct)}, [](const FakeLaunch& launch) {
    const auto p = launch.argument<SmallProduct>(0);
    // No more than the blocks of the grid would do.
    const std::int64_t rows = std::min<std::int64_t>(p.m, launch.grid[1] * 16),
                       cols = std::min<std::int64_t>(p.n, launch.grid[0] * 16);
    for (std::int64_t z = 0; z < launch.grid[2]; ++z) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < cols; ++j) {
          float sum = p.row ? p.row[j * p.row_step] : 0;
          for (std::int64_t k = 0; k < p.k; ++k) {
            sum += p.a[z * p.a_batch + i * p.a_row + k * p.a_col] *
                   p.b[z * p.b_batch + k * p.b_row + j * p.b_col];
          }
          p.d[z * p.d_batch + i * p.d_row + j * p.d_col] = sum;
        }
      }
    }
  });
}

}  // namespace brrr::testing
