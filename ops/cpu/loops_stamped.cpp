// Every innermost loop, for one level of the instruction set: built once for each, with BRRR_ISA
// naming it. All of it is in a namespace of that name or has no linkage, and it uses no inline
// function from elsewhere, so that the linker never mixes the levels.
#include "brrr/dispatch/for_each.h"
#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/vector_math.h"

#ifndef BRRR_ISA
#define BRRR_ISA baseline
#endif
#define BRRR_TEXT_OF(x) #x
#define BRRR_TEXT(x) BRRR_TEXT_OF(x)

#define BRRR_SCALAR_FN inline __attribute__((always_inline))
// The iterations of the loop that follows are independent, though outputs may be the very memory of
// inputs.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // loops that cannot be vectorized stay scalar
#define BRRR_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define BRRR_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace brrr::on_cpu::BRRR_ISA {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using i64 = std::int64_t;

#include "brrr/dispatch/functions.def"
#include "brrr/ops/cpu/scalar_math.inl"
#include "brrr/ops/jit/philox.inl"
#include "brrr/ops/jit/scalar.inl"

#include "brrr/ops/cpu/row_terms.inl"

#include "brrr/tensor/half.inl"

#include "brrr/ops/cpu/convert.inl"
#include "brrr/ops/cpu/vector_exp.inl"

#include "brrr/ops/cpu/lanes.inl"

// scalar.inl says `long long` where this machine's i64 is `long`.
BRRR_SCALAR_FN i64 pow(i64 base, i64 exponent) { return integer_power(base, exponent); }
BRRR_SCALAR_FN i64 floor(i64 a) { return a; }
BRRR_SCALAR_FN i64 ceil(i64 a) { return a; }
BRRR_SCALAR_FN i64 trunc(i64 a) { return a; }

namespace {

#include "brrr/ops/cpu/convert_loops.inl"
#include "brrr/ops/cpu/draw_batches.inl"
#include "brrr/ops/cpu/formula_loops.inl"
#include "brrr/ops/cpu/pointwise_loops.inl"
#include "brrr/ops/cpu/random_loops.inl"
#include "brrr/ops/cpu/reduction_loops.inl"

constexpr LoopTable make_table() {
  LoopTable table;
  table.isa = BRRR_TEXT(BRRR_ISA);
  fill_convert(table);
  fill_formulas(table);
  fill_pointwise(table);
  fill_reductions(table);
  fill_random(table);
  return table;
}

}  // namespace

extern constinit const LoopTable table;
constinit const LoopTable table = make_table();

}  // namespace brrr::on_cpu::BRRR_ISA
