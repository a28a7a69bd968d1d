// The innermost loops of CPU kernels: contiguous, one type, no shapes. They are compiled once per
// level of the instruction set (loops_stamped.cpp) and reached through one table, chosen when the
// library is loaded.
//
// This header is seen by every one of those compilations, so it holds no inline functions: the
// linker would keep one copy, perhaps one made of instructions that the machine lacks.
#pragma once

#include <cstdint>

#include <brrr/dispatch/dtype_rule.h>
#include <brrr/tensor/dtype.h>

namespace brrr {

namespace core {
struct Call;
}
class Tensor;

namespace on_cpu {

// n elements of operands that are contiguous or equal to the output, of the type computed in.
using Loop = void (*)(void* out, const void* const* in, std::int64_t n);
using Convert = void (*)(void* out, const void* in, std::int64_t n);

// Reductions accumulate in a type that may be wider than the element's: sums of f32 in f64, sums of
// integers in i64.
struct ReductionLoops {
  DType accumulator = DType::f32;
  DType result = DType::f32;
  void (*identity)(void* accumulators, std::int64_t n) = nullptr;
  // accumulators[r] = combined with the n elements from in[r * stride] on; the order depends on n
  // only.
  void (*fold_runs)(void* accumulators, const void* in, std::int64_t n, std::int64_t rows,
                    std::int64_t stride) = nullptr;
  // accumulators[j] = combined with in[row * stride + j] for each of the rows in order.
  void (*fold_rows)(void* accumulators, const void* in, std::int64_t n, std::int64_t rows,
                    std::int64_t stride) = nullptr;
  // accumulators[i] = combined with others[i].
  void (*merge)(void* accumulators, const void* others, std::int64_t n) = nullptr;
  // Results of `result` type from accumulators over `count` elements each.
  void (*finish)(void* out, const void* accumulators, std::int64_t n, std::int64_t count) = nullptr;
};

struct ArgLoops {
  // The first index of the best element of a run; NaN is the best of all.
  std::int64_t (*run)(const void* in, std::int64_t n) = nullptr;
  // For each column j the same over rows in[row * stride + j]; `best` is memory of n elements.
  void (*rows)(std::int64_t* index, void* best, const void* in, std::int64_t n, std::int64_t rows,
               std::int64_t stride) = nullptr;
};

// Draws for blocks [first, first + blocks) of a stream; see ops/jit/philox.inl. A block is four
// f32, two f64 or eight bool.
struct DrawKey {
  std::uint64_t seed = 0, step = 0;
  std::uint32_t place = 0;
  std::uint32_t threshold = 0;  // of bernoulli
};
using Draw = void (*)(void* out, DrawKey key, std::int64_t first, std::int64_t blocks);

// Operands and numbers in the order of a formula row; an output may be the memory of its operand.
using FormulaLoop = void (*)(void* const* out, const void* const* in, const double* numbers,
                             std::int64_t n);

inline constexpr int kLoopRows = 0
#define BRRR_UNARY(...) +1
#define BRRR_BINARY(...) +1
#define BRRR_TERNARY(...) +1
#include <brrr/dispatch/ops.def>
    ;
inline constexpr int kReductionRows = 0
#define BRRR_REDUCTION(...) +1
#include <brrr/dispatch/ops.def>
    ;
inline constexpr int kArgRows = 0
#define BRRR_ARG_REDUCTION(...) +1
#include <brrr/dispatch/ops.def>
    ;
inline constexpr int kFormulaRows = 0
#define BRRR_FORMULA(...) +1
#include <brrr/dispatch/ops.def>
    ;

// Rows are in ops.def's order. Entries of 16-bit floats are null where loops compute in f32.
struct LoopTable {
  const char* isa = "";
  Loop pointwise[kLoopRows][kDTypes] = {};
  Convert convert[kDTypes][kDTypes] = {};
  ReductionLoops reduction[kReductionRows][kDTypes] = {};
  ArgLoops arg_reduction[kArgRows][kDTypes] = {};
  Draw uniform[kDTypes] = {};
  Draw normal[kDTypes] = {};
  Draw bernoulli = nullptr;
  FormulaLoop formula[kFormulaRows][2] = {};  // in f32, in f64
};

// The best table that this machine can run.
extern const LoopTable* loops;

// Runs a loop of one pointwise op over the call's operands, whatever their layouts, types and
// scalars: what `pointwise` does once it has found its loop, and all that an op registered at run
// time needs.
void run_loop(Loop loop, const Call& call, Tensor* outputs);

}  // namespace on_cpu
}  // namespace brrr
