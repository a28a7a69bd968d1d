#include "brrr/ops/factor_copy.h"

#include <algorithm>

#include "brrr/ops/jit/contraction_choice.h"
#include "brrr/ops/matmul.h"

namespace brrr {

Call factor_copy(DType dtype) {
  Call call(Op::copy, nullptr, 1);
  call.dtype = dtype;
  return call;
}

// Hopper's tensor cores read TF32 factors in shared memory with adjacent elements along k only. The
// factors of a weight's gradient have them along m and n, for which cuBLASLt takes longer than with
// one of them along k. With b adjacent along k, generated tiles, which load a to registers, take
// still less time. So b is copied, unless it is so much larger than a that the copy takes longer
// than tiles save.
int factor_worth_copying(const FactorLayout& a, const FactorLayout& b, DType dtype, Device device) {
  // Seconds.
  constexpr double kSavedPerFlop = 1 / 420e12, kSavedByTilesPerFlop = 1 / 1400e12,
                   kCopyPerElement = 8 / 3.5e12, kLaunch = 1.5e-6;
  constexpr std::int64_t kLeast = 256;  // rows and columns; a product of fewer waits for memory
  if (!device.is_cuda() || dtype != f32 || matmul_precision() != Precision::tf32) return -1;
  if (a.shape.size() != 2 || b.shape.size() != 2) return -1;
  const std::int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  const bool along_m = a.strides[0] == 1 && a.strides[1] >= m,
             along_n = b.strides[1] == 1 && b.strides[0] >= n;
  if (!along_m || !along_n || std::min(m, n) < kLeast) return -1;
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const double copied = static_cast<double>(std::min(m, n) * k) * kCopyPerElement + kLaunch;
  if (flops * kSavedPerFlop <= copied) return -1;
  const double longer = static_cast<double>((n - m) * k) * kCopyPerElement;
  const bool is_for_tiles = flops <= static_cast<double>(jit::kMostFlopsOfRegisters);
  return longer <= (is_for_tiles ? flops * kSavedByTilesPerFlop : 0) ? 1 : 0;
}

}  // namespace brrr
