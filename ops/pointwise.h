// One pointwise call over any mix of tensors and numbers: promotes, converts, checks and
// dispatches. For functions of the table's rows and of ops registered at run time.
#pragma once

#include <span>
#include <type_traits>

#include <brrr/dispatch/op_info.h>
#include <brrr/dispatch/scalar.h>

namespace brrr {

inline constexpr int kMaxPointwiseArity = 3;

struct Operand {
  const Tensor* tensor = nullptr;  // null: `scalar` is the operand
  Scalar scalar = 0;

  Operand(const Tensor& t) : tensor(&t) {}
  Operand(Scalar s) : scalar(s) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> Operand(Number number) : scalar(number) {}
};

// The type that an op computes such operands in, by promotion; refuses what its row does not have.
DType compute_dtype(const OpInfo& info, std::span<const Operand> operands);

// With `in_place`, the result is written there; it is also operand 0 and fixes shape and dtype.
Tensor pointwise(Op op, std::span<const Operand> operands, Tensor* in_place);

}  // namespace brrr
