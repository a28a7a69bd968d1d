// An operand that is a tensor or a number.
#pragma once

#include <type_traits>

#include <brrr/dispatch/scalar.h>
#include <brrr/tensor/tensor.h>

namespace brrr::core {

struct Operand {
  const Tensor* tensor = nullptr;  // null: `scalar` is the operand
  Scalar scalar = 0;

  Operand(const Tensor& t) : tensor(&t) {}
  Operand(Scalar s) : scalar(s) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> Operand(Number number) : scalar(number) {}
};

}  // namespace brrr::core
