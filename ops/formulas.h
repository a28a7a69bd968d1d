// The formula rows of ops.def as functions: an operand of a row is a member of that name.
//
//   descend_({.param = p, .update = u, .rate = 0.1});
#pragma once

#include <array>

#include <brrr/dispatch/for_each.h>
#include <brrr/ops/operand.h>

namespace brrr {

namespace operands {
using core::Operand;
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

}  // namespace brrr
