// The formula rows of ops.def as functions: an operand of a row is a member of that name.
//
//   descend_({.param = p, .update = u, .rate = 0.1});
#pragma once

#include <array>

#include <brrr/dispatch/for_each.h>
#include <brrr/ops/pointwise.h>

namespace brrr {

namespace operands {
#define BRRR_ELEMENT(name) const Tensor& name;
#define BRRR_NUMBER(name) Operand name;
#define BRRR_FORMULA(name, written, read, numbers, ...) \
  struct name {                                         \
    BRRR_EACH(BRRR_ELEMENT, written)                    \
    BRRR_EACH(BRRR_ELEMENT, read)                       \
    BRRR_EACH(BRRR_NUMBER, numbers)                     \
  };
#include <brrr/dispatch/ops.def>
#undef BRRR_ELEMENT
#undef BRRR_NUMBER
}  // namespace operands

// The results are new tensors; with _ they are written over the operands that the row writes.
#define BRRR_ONE(name) +1
#define BRRR_FORMULA(name, written, ...)                                             \
  std::array<Tensor, 0 BRRR_EACH(BRRR_ONE, written)> name(const operands::name& of); \
  void name##_(const operands::name& of);
#include <brrr/dispatch/ops.def>
#undef BRRR_ONE

// --- For kernels: a call's inputs are the elements, then the numbers that are tensors; its
// attributes are the numbers, and which of them are tensors ---

inline DType formula_dtype(const Call& call) { return call.input(0).dtype() == f64 ? f64 : f32; }

// Calls f with the place of each number and its tensor, null where it is an attribute.
template <class F>
void each_number(const Call& call, F&& f) {
  const Formula& body = op_info(call.op).formula;
  const std::int64_t tensors = call.attrs[body.numbers()].i();
  for (int k = 0, next = body.elements; k < body.numbers(); ++k)
    f(k, tensors >> k & 1 ? call.inputs[next++] : nullptr);
}

}  // namespace brrr
