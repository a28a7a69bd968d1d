// A tile of the result is 12 rows of 32 columns in 24 of the 32 vector registers. The columns of b
// that it needs are packed, kDepth rows at a time, so that they stay in the first-level cache for
// all rows of a; elements of a are broadcast from where they are. One core of an EPYC does 249
// GFLOP/s at 256 x 256 x 256, and 126 with the AVX2 kernels that OpenBLAS 0.3.21 chooses
// (bench/results/amd-epyc-2-cores-2026-11-23-avx512.json).
#include "brrr/ops/cpu/matmul_avx512.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace brrr::on_cpu {

using i64 = std::int64_t;

#if defined(__x86_64__)

namespace {

#define BRRR_AVX512 __attribute__((target("avx512f,avx2,fma")))

constexpr i64 kRows = 12, kColumns = 32, kDepth = 256;

// `rows` of c, of the columns that the masks select, plus their product of `depth` rows of b.
template <int kCount>
BRRR_AVX512 void multiply_tile(i64 depth, const float* a, i64 a_row, i64 a_column,
                               const float* packed, float* c, i64 c_row, __mmask16 left,
                               __mmask16 right, bool adds, const float* bias) {
  __m512 sums[kCount][2];
#pragma GCC unroll 12
  for (int i = 0; i < kCount; ++i) {
    sums[i][0] = adds ? _mm512_maskz_loadu_ps(left, c + i * c_row) : _mm512_setzero_ps();
    sums[i][1] = adds ? _mm512_maskz_loadu_ps(right, c + i * c_row + 16) : _mm512_setzero_ps();
  }
  for (i64 k = 0; k < depth; ++k) {
    const __m512 b0 = _mm512_load_ps(packed + k * kColumns),
                 b1 = _mm512_load_ps(packed + k * kColumns + 16);
#pragma GCC unroll 12
    for (int i = 0; i < kCount; ++i) {
      const __m512 x = _mm512_set1_ps(a[i * a_row + k * a_column]);
      sums[i][0] = _mm512_fmadd_ps(x, b0, sums[i][0]);
      sums[i][1] = _mm512_fmadd_ps(x, b1, sums[i][1]);
    }
  }
  if (bias) {
    const __m512 b0 = _mm512_maskz_loadu_ps(left, bias),
                 b1 = _mm512_maskz_loadu_ps(right, bias + 16);
#pragma GCC unroll 12
    for (int i = 0; i < kCount; ++i) {
      sums[i][0] = _mm512_add_ps(sums[i][0], b0);
      sums[i][1] = _mm512_add_ps(sums[i][1], b1);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kCount; ++i) {
    _mm512_mask_storeu_ps(c + i * c_row, left, sums[i][0]);
    _mm512_mask_storeu_ps(c + i * c_row + 16, right, sums[i][1]);
  }
}

// Eight rows of eight elements, transposed.
BRRR_AVX512 void transpose_8x8(const float* from, i64 from_row, float* to, i64 to_row) {
  __m256 rows[8], pairs[8], fours[8];
  for (int i = 0; i < 8; ++i) rows[i] = _mm256_loadu_ps(from + i * from_row);
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
    pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
  }
  for (int h = 0; h < 2; ++h) {
    const __m256* const p = pairs + 4 * h;
    fours[4 * h] = _mm256_shuffle_ps(p[0], p[2], 0x44);
    fours[4 * h + 1] = _mm256_shuffle_ps(p[0], p[2], 0xee);
    fours[4 * h + 2] = _mm256_shuffle_ps(p[1], p[3], 0x44);
    fours[4 * h + 3] = _mm256_shuffle_ps(p[1], p[3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_row, _mm256_permute2f128_ps(fours[i], fours[4 + i], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_row, _mm256_permute2f128_ps(fours[i], fours[4 + i], 0x31));
  }
}

// `depth` rows of `columns` columns of b, at most kColumns, in rows of kColumns. What is beyond
// them is zero.
BRRR_AVX512 void pack(float* packed, i64 depth, i64 columns, const float* b, i64 b_row,
                      i64 b_column) {
  if (columns < kColumns)
    std::memset(packed, 0, static_cast<std::size_t>(depth * kColumns) * sizeof(float));
  if (b_column == 1) {
    for (i64 k = 0; k < depth; ++k)
      std::memcpy(packed + k * kColumns, b + k * b_row, static_cast<std::size_t>(columns) * 4);
    return;
  }
  i64 j = 0;
  for (; b_row == 1 && j + 8 <= columns; j += 8) {
    i64 k = 0;
    for (; k + 8 <= depth; k += 8)
      transpose_8x8(b + j * b_column + k, b_column, packed + k * kColumns + j, kColumns);
    for (; k < depth; ++k) {
      for (i64 i = j; i < j + 8; ++i) packed[k * kColumns + i] = b[k + i * b_column];
    }
  }
  for (; j < columns; ++j) {
    for (i64 k = 0; k < depth; ++k) packed[k * kColumns + j] = b[k * b_row + j * b_column];
  }
}

using Tile = void (*)(i64, const float*, i64, i64, const float*, float*, i64, __mmask16, __mmask16,
                      bool, const float*);
constexpr Tile kTiles[] = {
    nullptr,           multiply_tile<1>,  multiply_tile<2>,  multiply_tile<3>, multiply_tile<4>,
    multiply_tile<5>,  multiply_tile<6>,  multiply_tile<7>,  multiply_tile<8>, multiply_tile<9>,
    multiply_tile<10>, multiply_tile<11>, multiply_tile<12>,
};

}  // namespace

bool has_avx512() {
  static const bool has = [] {
    const char* asked = std::getenv("BRRR_ISA");
    return !(asked && std::strcmp(asked, "baseline") == 0) && __builtin_cpu_supports("avx512f");
  }();
  return has;
}

void multiply_avx512(i64 m, i64 n, i64 k, MatrixView a, MatrixView b, float* c, i64 c_row,
                     const float* bias) {
  alignas(64) float packed[kDepth * kColumns];
  for (i64 first = 0; first < k; first += kDepth) {
    const i64 depth = std::min(kDepth, k - first);
    for (i64 j = 0; j < n; j += kColumns) {
      const i64 columns = std::min(kColumns, n - j);
      const auto mask = [](i64 count) {
        return static_cast<__mmask16>((1u << std::clamp<i64>(count, 0, 16)) - 1);
      };
      pack(packed, depth, columns, b.data + first * b.row + j * b.column, b.row, b.column);
      for (i64 i = 0; i < m; i += kRows) {
        kTiles[std::min(kRows, m - i)](depth, a.data + i * a.row + first * a.column, a.row,
                                       a.column, packed, c + i * c_row + j, c_row, mask(columns),
                                       mask(columns - 16), first > 0,
                                       bias && first + depth == k ? bias + j : nullptr);
      }
    }
  }
}

#else

bool has_avx512() { return false; }
void multiply_avx512(i64, i64, i64, MatrixView, MatrixView, float*, i64, const float*) {}

#endif

}  // namespace brrr::on_cpu
