// Numbers of the host as operands and attributes.
#pragma once

#include <string>

#include <brrr/dispatch/call.h>
#include <brrr/dispatch/scalar.h>

namespace brrr {

std::string to_string(Scalar value);
[[noreturn]] void throw_out_of_range(const char* op, DType dtype, Scalar value);

// Whether a finite number stays finite in a floating type, where it is rounded.
bool stays_finite(DType dtype, double value);

// Whether a tensor of `dtype` can store the number: an integer type the number itself, a floating
// type one that is rounded.
inline bool holds(DType dtype, Scalar value) {
  if (is_floating(dtype)) return stays_finite(dtype, value.to_double());
  const std::int64_t integer = value.to_int();
  if (value.category() == Category::floating) {
    // 2^63 is the first double beyond i64, and to_int gives the integer below it.
    if (static_cast<double>(integer) != value.to_double() || value.to_double() >= 0x1p63)
      return false;
  }
  return dtype == i64 || (dtype == i32 ? integer == static_cast<std::int32_t>(integer)
                                       : integer == 0 || integer == 1);
}

// The number as an operand of an op that works in `dtype`. An integer type takes only what it
// holds: nothing is cut off or wraps. Floating types take every number, infinite where it is too
// large.
inline Attr number_in(const char* op, DType dtype, Scalar value) {
  if (is_floating(dtype)) return Attr::of(value.to_double());
  if (!holds(dtype, value)) [[unlikely]]
    throw_out_of_range(op, dtype, value);
  return value.to_int();
}

}  // namespace brrr
