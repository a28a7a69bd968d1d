// The names that each row of ops.def asks for. A row whose piece is missing fails to link.
#pragma once

#include <brrr/dispatch/op_info.h>

// The kernel of that name; none where CUDA is off.
#if BRRR_HAS_CUDA
#define BRRR_ON_CUDA(name) on_cuda::name
#else
#define BRRR_ON_CUDA(name) nullptr
#endif

namespace brrr {

// Shapes of outputs. Rows of one kind share a rule (ops/shapes.cpp); that of a structured row
// is beside its public function, that of a fused one in the file of its op.
namespace infer {
inline OutputSpec like(const Tensor& x, DType dtype) {
  return {dtype, x.device(), Dims(x.shape())};
}
inline OutputSpec like(const Tensor& x) { return like(x, x.dtype()); }

void pointwise(const Call& call, OutputSpec* outputs);
void reduction(const Call& call, OutputSpec* outputs);
void arg_reduction(const Call& call, OutputSpec* outputs);
void formula(const Call& call, OutputSpec* outputs);
#define BRRR_STRUCTURED(name, ...) void name(const Call& call, OutputSpec* outputs);
#define BRRR_FUSED(name, ...) void name(const Call& call, OutputSpec* outputs);
#include <brrr/dispatch/ops.def>
}  // namespace infer

// Arithmetic and bytes of a call, for reports and passes; of structured and fused rows, by
// their column.
namespace cost {
Cost pointwise(const Call& call, std::span<const Tensor> outputs);
Cost reduction(const Call& call, std::span<const Tensor> outputs);
Cost arg_reduction(const Call& call, std::span<const Tensor> outputs);
Cost formula(const Call& call, std::span<const Tensor> outputs);
#define BRRR_STRUCTURED(name, ...) Cost name(const Call& call, std::span<const Tensor> outputs);
#define BRRR_FUSED(name, ...) Cost name(const Call& call, std::span<const Tensor> outputs);
#include <brrr/dispatch/ops.def>
}  // namespace cost

namespace views {
// `length` places along a dimension, from `start` on by `step`.
Tensor places(const Tensor& x, int dim, std::int64_t start, std::int64_t length, std::int64_t step);
#define BRRR_VIEW(name, ...) Tensor name(const Call& call);
#include <brrr/dispatch/ops.def>
}  // namespace views

// Kernels. Inputs and outputs have been checked; outputs exist and may be strided when the call is
// in place.
namespace on_cpu {
void pointwise(const Call& call, Tensor* outputs);
void reduction(const Call& call, Tensor* outputs);
void arg_reduction(const Call& call, Tensor* outputs);
void formula(const Call& call, Tensor* outputs);
#define BRRR_CONVERSION(name, ...) void name(const Call& call, Tensor* outputs);
#define BRRR_STRUCTURED(name, ...) void name(const Call& call, Tensor* outputs);
#include <brrr/dispatch/ops.def>
}  // namespace on_cpu

namespace on_cuda {
void pointwise(const Call& call, Tensor* outputs);
void reduction(const Call& call, Tensor* outputs);
void arg_reduction(const Call& call, Tensor* outputs);
void formula(const Call& call, Tensor* outputs);
#define BRRR_CONVERSION(name, ...) void name(const Call& call, Tensor* outputs);
#define BRRR_STRUCTURED(name, ...) void name(const Call& call, Tensor* outputs);
#define BRRR_FUSED(name, ...) void name(const Call& call, Tensor* outputs);
#include <brrr/dispatch/ops.def>
}  // namespace on_cuda

// Gradient rules: the last columns of ops.def, made into functions.
namespace gradients {
#define BRRR_UNARY(name, ...) extern const GradientRule name;
#define BRRR_BINARY(name, ...) extern const GradientRule name;
#define BRRR_TERNARY(name, ...) extern const GradientRule name;
#define BRRR_REDUCTION(name, ...) extern const GradientRule name;
#define BRRR_VIEW(name, ...) extern const GradientRule name;
#define BRRR_CONVERSION(name, ...) extern const GradientRule name;
#define BRRR_STRUCTURED(name, ...) extern const GradientRule name;
#include <brrr/dispatch/ops.def>
}  // namespace gradients

// --- Calls of formula rows: the inputs are the elements, then the numbers that are tensors; the
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
