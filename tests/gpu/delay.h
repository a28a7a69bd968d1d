// Work of a known duration, for tests of streams and memory on a real GPU: a missing wait becomes
// visible.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <brrr/ops/functions.h>
#include <brrr/ops/register_op.h>
#include <brrr/tensor/error.h>
#include <brrr/tensor/host_copy.h>
#include <brrr/tensor/stream.h>

#include "tests/harness/errors_expected.h"

namespace brrr::testing {

inline constexpr Device kGpu = cuda(0);

// A copy of x (contiguous, f32) that reads it only after so long a time on the device.
Tensor slow_copy(const Tensor& x, double microseconds);

// Keeps the current stream busy.
void delay(double microseconds);

// The bytes of a tensor of any device and strides, row-major.
std::vector<std::byte> bits_of(const Tensor& tensor);

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()) &&
         bits_of(a) == bits_of(b);
}

using test::error_of;

}  // namespace brrr::testing
