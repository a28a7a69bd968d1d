// Numbers of the host as operands and attributes.
#pragma once

#include <string>

#include <brrr/dispatch/call.h>
#include <brrr/dispatch/scalar.h>

namespace brrr {

std::string to_string(Scalar value);
[[noreturn]] void does_not_hold(const char* op, DType dtype, Scalar value);

// True when `dtype` has the value itself. Floating types have every number, rounded.
inline bool holds(DType dtype, Scalar value) {
  if (is_floating(dtype)) return true;
  const std::int64_t integer = value.to_int();
  if (value.category() == Category::floating) {
    // 2^63 is the first double beyond i64, and to_int gives the integer below it.
    if (static_cast<double>(integer) != value.to_double() || value.to_double() >= 0x1p63)
      return false;
  }
  return dtype == i64 || (dtype == i32 ? integer == static_cast<std::int32_t>(integer)
                                       : integer == 0 || integer == 1);
}

// The number as an op that works in `dtype` takes it. An integer type takes only what it holds:
// nothing is cut off or wraps.
inline Attr number_in(const char* op, DType dtype, Scalar value) {
  if (is_floating(dtype)) return Attr::of(value.to_double());
  if (!holds(dtype, value)) [[unlikely]]
    does_not_hold(op, dtype, value);
  return value.to_int();
}

}  // namespace brrr
