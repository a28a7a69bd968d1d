#include "brrr/ops/numbers.h"

#include <fmt/format.h>

#include "brrr/tensor/error.h"

namespace brrr {

std::string to_string(Scalar value) {
  return value.category() == Category::floating ? fmt::format("{}", value.to_double())
                                                : fmt::format("{}", value.to_int());
}

void does_not_hold(const char* op, DType dtype, Scalar value) {
  fail(fmt::format("[{}] expected a number that {} holds, got {}", op, name_of(dtype),
                   to_string(value)));
}

}  // namespace brrr
