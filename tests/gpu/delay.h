// What the tests of streams and memory on a real GPU share: work that takes a known time, so that
// what should have waited and did not is seen.
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

// The text of the Error that `action` throws; "" when it throws none.
template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace brrr::testing
