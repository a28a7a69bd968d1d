#include "ops/numbers.h"

#include <fmt/format.h>

#include "tensor/error.h"

namespace brrr {

void does_not_hold(const char* op, DType dtype, Scalar value) {
  const std::string number = value.category() == Category::floating
                                 ? fmt::format("{}", value.to_double())
                                 : fmt::format("{}", value.to_int());
  fail(fmt::format("[{}] expected a number that {} holds, got {}", op, name_of(dtype), number));
}

}  // namespace brrr
