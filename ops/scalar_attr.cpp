#include "brrr/ops/scalar_attr.h"

#include <fmt/format.h>

#include <cmath>

#include "brrr/tensor/fail.h"

namespace brrr {

std::string to_string(Scalar value) {
  return value.category() == Category::floating ? fmt::format("{}", value.to_double())
                                                : fmt::format("{}", value.to_int());
}

bool is_finite_in(DType dtype, double value) {
  if (!std::isfinite(value)) return true;
  const auto rounded = static_cast<float>(value);
  switch (dtype) {
    case DType::f32: return std::isfinite(rounded);
    case DType::f16: return std::isfinite(static_cast<float>(Float16(rounded)));
    case DType::bf16: return std::isfinite(static_cast<float>(BFloat16(rounded)));
    default: return true;
  }
}

void throw_out_of_range(const char* op, DType dtype, Scalar value) {
  fail("[{}] expected a number that {} holds, got {}", op, name_of(dtype), to_string(value));
}

}  // namespace brrr
