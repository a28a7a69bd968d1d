#include "brrr/ops/factor_copy.h"

#include <algorithm>
#include <numeric>

#include "brrr/ops/body_kernel.h"
#include "brrr/ops/jit/contraction_choice.h"
#include "brrr/ops/jit/small_product.h"
#include "brrr/ops/matmul.h"

namespace brrr {

Call factor_copy(DType dtype) {
  Call call(Op::copy, nullptr, 1);
  call.dtype = dtype;
  return call;
}

int FactorLayout::adjacent() const {
  const int last = shape.size() - 1;
  return strides[last] == 1 ? last : strides[last - 1] == 1 ? last - 1 : -1;
}

std::int64_t FactorLayout::alignment(DType dtype) const {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  std::int64_t common = std::gcd(std::int64_t{16}, begin);
  for (int d = 0; d < shape.size(); ++d) {
    if (d != adjacent() && shape[d] > 1) common = std::gcd(common, strides[d] * size);
  }
  return common;
}

// Hopper's tensor cores read TF32 factors in shared memory with adjacent elements along k only. The
// factors of a weight's gradient have them along m and n, for which cuBLASLt takes longer than with
// one of them along k. With b adjacent along k, generated tiles, which load a to registers, take
// still less time. So b is copied, unless it is so much larger than a that the copy takes longer
// than tiles save.
FactorCopies copies_for_tf32(const FactorLayout& a, const FactorLayout& b, DType dtype,
                             Device device) {
  constexpr FactorCopies kNone = {FactorCopy::none, FactorCopy::none};
  // Seconds.
  constexpr double kSavedPerFlop = 1 / 420e12, kSavedByTilesPerFlop = 1 / 1400e12,
                   kCopyPerElement = 8 / 3.5e12, kLaunch = 1.5e-6;
  constexpr std::int64_t kLeast = 256;  // rows and columns; a product of fewer waits for memory
  if (!device.is_cuda() || dtype != f32 || matmul_precision() != Precision::tf32) return kNone;
  if (a.shape.size() != 2 || b.shape.size() != 2) return kNone;
  const std::int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  const bool along_m = a.strides[0] == 1 && a.strides[1] >= m,
             along_n = b.strides[1] == 1 && b.strides[0] >= n;
  if (!along_m || !along_n || std::min(m, n) < kLeast) return kNone;
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const double copied = static_cast<double>(std::min(m, n) * k) * kCopyPerElement + kLaunch;
  if (flops * kSavedPerFlop <= copied) return kNone;
  const double longer = static_cast<double>((n - m) * k) * kCopyPerElement;
  const bool is_for_tiles = flops <= static_cast<double>(jit::kMostFlopsOfRegisters);
  return longer <= (is_for_tiles ? flops * kSavedByTilesPerFlop : 0)
             ? FactorCopies{FactorCopy::none, FactorCopy::transposed}
             : FactorCopies{FactorCopy::transposed, FactorCopy::none};
}

FactorCopies copies_for_tiles(const FactorLayout& a, const FactorLayout& b, DType dtype,
                              Device device) {
  FactorCopies copies = {FactorCopy::none, FactorCopy::none};
  const bool rounds = dtype == f32 && matmul_precision() == Precision::tf32;
  const int rank = a.shape.size();
  constexpr int kMostRank = 4;  // tiles have two dimensions of batches
  const auto takes = [](const FactorLayout& x) {
    return x.shape.size() >= 2 && x.shape.size() <= kMostRank && x.adjacent() >= 0 &&
           std::ranges::find(x.strides, 0) == x.strides.end();
  };
  if (!has_tiles(device) || !(is_half(dtype) || rounds) || !takes(a) || !takes(b)) return copies;
  const bool unaligned[] = {a.alignment(dtype) < 16, b.alignment(dtype) < 16};
  if (!unaligned[0] && !unaligned[1]) return copies;
  jit::MatrixProduct p;
  p.m = a.shape[rank - 2];
  p.k = a.shape[rank - 1];
  p.n = b.shape[b.shape.size() - 1];
  std::int64_t matrices = 1;
  for (int d = 0; d < rank - 2; ++d) matrices *= a.shape[d];
  if (b.shape.size() == 2) {
    p.m *= matrices;
  } else {
    p.batch = {matrices};
  }
  if (jit::is_small(p, dtype, rounds)) return copies;
  for (int i = 0; i < 2; ++i) {
    if (unaligned[i]) copies[static_cast<std::size_t>(i)] = FactorCopy::padded;
  }
  if (!rounds) return copies;
  // Tiles have one TF32 factor with adjacent elements across the sum, in registers, and in long
  // products none.
  const bool across_a = a.adjacent() != rank - 1, across_b = b.adjacent() == b.shape.size() - 1;
  const auto flops = 2.0 * static_cast<double>(p.batches() * p.m) * static_cast<double>(p.n) *
                     static_cast<double>(p.k);
  const bool is_long = flops > static_cast<double>(jit::kMostFlopsOfRegisters);
  if (across_b && (across_a || is_long)) copies[1] = FactorCopy::transposed;
  if (across_a && is_long) copies[0] = FactorCopy::transposed;
  return copies;
}

}  // namespace brrr
