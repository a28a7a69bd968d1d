// What is known of an op: its row, its shape rule and its kernels. Built-in ops come from ops.def
// (the table is put together in ops/table.cpp); ops registered at run time join the same table.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <brrr/dispatch/call.h>
#include <brrr/dispatch/gradient.h>

namespace brrr {

enum class OpKind : std::uint8_t { pointwise, reduction, arg_reduction, view, structured };
enum class DTypeRule : std::uint8_t { same, float_like, predicate, select, widened };

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

// Shape and type of an output that does not exist yet.
struct OutputSpec {
  DType dtype = DType::f32;
  Device device;
  Dims shape;
};

using InferFn = void (*)(const Call& call, OutputSpec* outputs);
using KernelFn = void (*)(const Call& call, Tensor* outputs);
using ViewFn = Tensor (*)(const Call& call);

// What an op registered at run time has beside its row; its kernels know what it is.
struct RegisteredOp {
  std::function<void(Gradient&)> gradient;

  virtual ~RegisteredOp() = default;
};

struct OpInfo {
  const char* name = "";
  OpKind kind = OpKind::structured;
  DTypeRule rule = DTypeRule::same;
  DTypeSet types = dtype_sets::all;
  std::int8_t arity = 0;  // inputs, scalar operands included; -1: any number
  std::uint8_t n_outputs = 1;
  double low = -2, high = 2;  // domain of samples in tests
  // Pointwise: `expression`. Reductions: map in `expression`, and the other three.
  const char* expression = "";
  const char* identity = "";
  const char* combine = "";
  const char* finish = "";
  // Names, separated by spaces: integers, but "scale:double" is a double, and "value:number" is a
  // double where the call's dtype is floating. "shape..." is all that follow, as integers.
  const char* attributes = "";

  InferFn infer = nullptr;
  ViewFn view = nullptr;
  KernelFn cpu = nullptr;
  KernelFn cuda = nullptr;
  GradientRule gradient;
  std::shared_ptr<RegisteredOp> registered;  // null for built-in ops
};

namespace detail {
inline constexpr int kMaxOps = 1024;
extern const OpInfo* op_table[kMaxOps];
}  // namespace detail

inline const OpInfo& op_info(Op op) { return *detail::op_table[static_cast<int>(op)]; }
int op_count();  // built-in and registered

// Adds an op for good; throws when the name is taken or the table is full.
Op add_op(OpInfo info, std::string name);

}  // namespace brrr
