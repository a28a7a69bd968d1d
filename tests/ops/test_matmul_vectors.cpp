// The CPU's own products of f32 matrices.
#include <cmath>
#include <random>
#include <vector>

#include "brrr/ops/cpu/matmul_vectors.h"
#include "tests/harness/catch.h"
#include "tests/harness/skip.h"

using namespace brrr::on_cpu;
using std::int64_t;

namespace {

std::vector<float> noise(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-2, 2);
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& x : result) x = values(random);
  return result;
}

}  // namespace

TEST_CASE("a product in vectors is a chain of fma for each element", "[ops]") {
  const VectorIsa isa = GENERATE(VectorIsa::avx2, VectorIsa::avx512);
  if (isa > vector_isa()) return brrr::testing::skip("the CPU has no such vectors");
  struct Sizes {
    int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Sizes{1, 1, 1},
                                {12, 32, 8},
                                {13, 33, 9},
                                {5, 16, 300},
                                {23, 17, 1},
                                {40, 31, 257},
                                {3, 100, 513},
                                {64, 8, 64},
                                {64, 64, 40},       // rows of b where they are,
                                {40, 96, 300},      // packed by the first tile,
                                {40, 80, 1100}}) {  // and ahead of it
    for (int layout = 0; layout < 4; ++layout) {
      INFO(m << " x " << n << " x " << k << ", layout " << layout);
      const bool a_transposed = layout & 1, b_transposed = layout & 2;
      const int64_t padding = 3;  // of the rows in memory
      const int64_t a_leading = (a_transposed ? m : k) + padding,
                    b_leading = (b_transposed ? k : n) + padding, c_row = n + padding;
      const std::vector<float> a = noise(a_leading * (a_transposed ? k : m), 1),
                               b = noise(b_leading * (b_transposed ? n : k), 2);
      const MatrixView a_view{a.data(), a_transposed ? 1 : a_leading, a_transposed ? a_leading : 1},
          b_view{b.data(), b_transposed ? 1 : b_leading, b_transposed ? b_leading : 1};
      std::vector<float> c(static_cast<std::size_t>(m * c_row), 7.0f);
      multiply_vectors(isa, m, n, k, a_view, b_view, c.data(), c_row);
      int64_t wrong = 0;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < c_row; ++j) {
          float wanted = j < n ? 0.0f : 7.0f;  // what is beyond the columns is not written
          for (int64_t p = 0; j < n && p < k; ++p)
            wanted = std::fma(a_view.data[i * a_view.row + p * a_view.column],
                              b_view.data[p * b_view.row + j * b_view.column], wanted);
          wrong += c[static_cast<std::size_t>(i * c_row + j)] != wanted;
        }
      }
      CHECK(wrong == 0);

      const std::vector<float> bias = noise(n, 3), without = c;
      multiply_vectors(isa, m, n, k, a_view, b_view, c.data(), c_row, bias.data());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          const auto at = static_cast<std::size_t>(i * c_row + j);
          wrong += c[at] != without[at] + bias[static_cast<std::size_t>(j)];
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("zeros beyond the columns of a product in vectors make no NaN", "[ops]") {
  const VectorIsa isa = GENERATE(VectorIsa::avx2, VectorIsa::avx512);
  if (isa > vector_isa()) return brrr::testing::skip("the CPU has no such vectors");
  const std::vector<float> a(12, INFINITY), b(3, 1.0f);
  std::vector<float> c(12 * 3, 0.0f);
  multiply_vectors(isa, 12, 3, 1, {a.data(), 1, 1}, {b.data(), 3, 1}, c.data(), 3);
  for (const float x : c) CHECK(x == INFINITY);
}
