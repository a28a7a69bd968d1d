// Denormal numbers in products on the CPU: f32 takes them as 0 on x86-64, and only there.
#include <algorithm>
#include <limits>

#include "tests/harness/catch.h"
#include "tests/harness/skip.h"
#include <brrr/brrr.h>

namespace brrr::test {
namespace {

constexpr float kDenormal = 0x1p-140f, kSmallest = std::numeric_limits<float>::min();

// Whether all elements are `wanted`, to the bit but for the sign of zero.
bool all_are(const Tensor& x, double wanted) {
  const Tensor values = to(contiguous(x), f64);
  const double* at = values.data<double>();
  return std::all_of(at, at + values.numel(), [&](double each) { return each == wanted; });
}

struct Sizes {
  std::int64_t batch, m, n, k;
};
// Own kernels, of tiles and of panels for several threads; BLAS: a row, narrow results.
constexpr Sizes kSizes[] = {{1, 8, 64, 1}, {3, 40, 48, 1}, {1, 512, 512, 1},
                            {1, 1, 96, 1}, {1, 96, 1, 1},  {1, 300, 4, 1}};

}  // namespace

TEST_CASE("f32 products take denormal numbers as 0, other arithmetic does not", "[matmul]") {
#if !defined(__x86_64__)
  return testing::skip("denormal numbers are flushed on x86-64 alone");
#endif
  for (const auto& [batch, m, n, k] : kSizes) {
    INFO(batch << " x " << m << " x " << n << " x " << k);
    const Tensor ones = full({batch, k, n}, 1.0), tiny = full({batch, m, k}, kDenormal);
    CHECK(all_are(matmul(tiny, ones), 0));                                  // an operand
    CHECK(all_are(matmul(full({batch, m, k}, kSmallest), ones * 0.5), 0));  // a result
    CHECK(all_are(matmul(full({batch, m, k}, kSmallest), ones), kSmallest));
    // The threads that computed the product compute denormal numbers exactly afterwards.
    const Tensor many = full({1 << 20}, kDenormal);
    CHECK(all_are(many + many, 2.0 * kDenormal));
    CHECK(all_are(many * 0.5, 0.5 * kDenormal));
  }
}

TEST_CASE("f64 products keep small numbers", "[matmul]") {
  const Options wide{.dtype = f64};
  CHECK(all_are(matmul(full({8, 1}, 0x1p-1060, wide), full({1, 64}, 1.0, wide)), 0x1p-1060));
  CHECK(all_are(matmul(full({8, 1}, kDenormal, wide), full({1, 64}, 1.0, wide)), kDenormal));
}

// Of halves the denormal numbers of f16 are normal in f32, in which products are computed.
TEST_CASE("products of f16 keep its denormal numbers", "[matmul]") {
  const Options half{.dtype = f16};
  CHECK(all_are(matmul(full({8, 1}, 0x1p-24, half), full({1, 64}, 1.0, half)), 0x1p-24));
}

}  // namespace brrr::test
