// One pointwise call over any mix of tensors and numbers: promotes, converts, checks and
// dispatches. For functions of the table's rows and of ops registered at run time.
#pragma once

#include <span>

#include <brrr/dispatch/op_info.h>
#include <brrr/ops/operand.h>

namespace brrr {

inline constexpr int kMaxPointwiseArity = 3;

// The type that an op computes such operands in, by promotion; refuses what its row does not have.
DType compute_dtype(const OpInfo& info, std::span<const Operand> operands);

// With `in_place`, the result is written there; it is also operand 0 and fixes shape and dtype.
Tensor pointwise(Op op, std::span<const Operand> operands, Tensor* in_place);

}  // namespace brrr
