// Sets of element types, and the rules by which rows of the op table choose the types that they
// compute in, accumulate in and return. Loops that are compiled for several instruction sets
// include this file, so it defines only constants and constexpr functions.
#pragma once

#include <cstdint>

#include <brrr/tensor/dtype.h>

namespace brrr::core {

// Each is explained at the head of ops.def.
enum class DTypeRule : std::uint8_t { same, float_like, predicate, select, widened, converts };

// Sets of element types, as bits by DType.
using DTypeSet = std::uint8_t;
constexpr DTypeSet set_of(DType dtype) {
  return static_cast<DTypeSet>(1u << static_cast<int>(dtype));
}
namespace dtype_sets {
inline constexpr DTypeSet floats = set_of(f32) | set_of(f64) | set_of(f16) | set_of(bf16);
inline constexpr DTypeSet numbers = floats | set_of(i32) | set_of(i64);
inline constexpr DTypeSet all = numbers | set_of(boolean);
inline constexpr DTypeSet integral = set_of(i32) | set_of(i64) | set_of(boolean);
}  // namespace dtype_sets
constexpr bool contains(DTypeSet set, DType dtype) { return set & set_of(dtype); }

// The type of a row's result when it computes in `dtype`, or for a reduction, when it reduces
// `dtype`.
constexpr DType result_dtype(DTypeRule rule, DType dtype) {
  if (rule == DTypeRule::predicate) return boolean;
  return rule == DTypeRule::widened && !is_floating(dtype) ? i64 : dtype;
}

// The type of a reduction's accumulators. The CPU sums floats in f64, which costs it nothing; CUDA
// sums them in the result's type, in a tree.
constexpr DType reduction_accumulator(DTypeRule rule, DType dtype, bool on_cuda) {
  const bool sums = rule == DTypeRule::widened || rule == DTypeRule::float_like;
  if (sums && !on_cuda) return is_floating(dtype) ? f64 : i64;
  const DType kept = on_cuda ? result_dtype(rule, dtype) : dtype;
  return is_half(kept) ? f32 : kept;
}

}  // namespace brrr::core
