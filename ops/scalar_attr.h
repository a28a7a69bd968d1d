// Conversion of a caller's numbers to attributes of calls: which numbers a type represents.
#pragma once

#include <string>

#include <brrr/dispatch/call.h>
#include <brrr/dispatch/scalar.h>

namespace brrr {

std::string to_string(Scalar value);
[[noreturn]] void throw_out_of_range(const char* op, DType dtype, Scalar value);

// Whether a finite number stays finite when it is rounded to a floating type.
bool is_finite_in(DType dtype, double value);

// Whether a tensor of `dtype` can store the number: an integer type exactly, a floating type
// rounded.
inline bool is_representable(DType dtype, Scalar value) {
  if (is_floating(dtype)) return is_finite_in(dtype, value.to_double());
  const std::int64_t integer = value.to_int();
  if (value.category() == Category::floating) {
    // 2^63 is the first double beyond i64, and to_int gives the integer below it.
    if (static_cast<double>(integer) != value.to_double() || value.to_double() >= 0x1p63)
      return false;
  }
  return dtype == i64 || (dtype == i32 ? integer == static_cast<std::int32_t>(integer)
                                       : integer == 0 || integer == 1);
}
inline void require_representable(const char* op, DType dtype, Scalar value) {
  if (!is_representable(dtype, value)) [[unlikely]]
    throw_out_of_range(op, dtype, value);
}

// The number as an operand of an op that computes in `dtype`. An integer type takes only what it
// represents: nothing is truncated or wraps. Floating types take every number, infinite where it is
// too large.
inline Attr scalar_attr(const char* op, DType dtype, Scalar value) {
  if (is_floating(dtype)) return Attr::of(value.to_double());
  require_representable(op, dtype, value);
  return value.to_int();
}

}  // namespace brrr
