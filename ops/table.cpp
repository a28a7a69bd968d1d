// The table of built-in ops, put together from ops.def and the kernels that its rows name.
#include "brrr/dispatch/op_info.h"
#include "brrr/ops/gradients.h"
#include "brrr/ops/kernels.h"

namespace brrr::detail {
namespace {

#if BRRR_HAS_CUDA
#define BRRR_ON_CUDA(kernel) on_cuda::kernel
#else
#define BRRR_ON_CUDA(kernel) nullptr
#endif

OpInfo pointwise(const char* name, int arity, DTypeSet types, DTypeRule rule, double low,
                 double high, const char* expression, const GradientRule& gradient) {
  OpInfo info;
  info.name = name;
  info.kind = OpKind::pointwise;
  info.rule = rule;
  info.types = types;
  info.arity = static_cast<std::int8_t>(arity);
  info.low = low;
  info.high = high;
  info.expression = expression;
  info.infer = infer::pointwise;
  info.cpu = on_cpu::pointwise;
  info.cuda = BRRR_ON_CUDA(pointwise);
  info.gradient = gradient;
  return info;
}

OpInfo reduction(const char* name, DTypeSet types, DTypeRule rule, const char* map,
                 const char* identity, const char* combine, const char* finish,
                 const GradientRule& gradient) {
  OpInfo info;
  info.name = name;
  info.kind = OpKind::reduction;
  info.rule = rule;
  info.types = types;
  info.arity = 1;
  info.expression = map;
  info.identity = identity;
  info.combine = combine;
  info.finish = finish;
  info.attributes = "dims keepdim";
  info.infer = infer::reduction;
  info.cpu = on_cpu::reduction;
  info.cuda = BRRR_ON_CUDA(reduction);
  info.gradient = gradient;
  return info;
}

OpInfo arg_reduction(const char* name, const char* before) {
  OpInfo info;
  info.name = name;
  info.kind = OpKind::arg_reduction;
  info.arity = 1;
  info.expression = before;
  info.attributes = "dim keepdim";
  info.infer = infer::arg_reduction;
  info.cpu = on_cpu::arg_reduction;
  info.cuda = BRRR_ON_CUDA(arg_reduction);
  return info;
}

OpInfo view(const char* name, const char* attributes, ViewFn rule, const GradientRule& gradient) {
  OpInfo info;
  info.name = name;
  info.kind = OpKind::view;
  info.arity = 1;
  info.attributes = attributes;
  info.view = rule;
  info.gradient = gradient;
  return info;
}

OpInfo structured(const char* name, int inputs, const char* attributes, InferFn shape, KernelFn cpu,
                  KernelFn cuda, const GradientRule& gradient, int outputs = 1) {
  OpInfo info;
  info.name = name;
  info.kind = OpKind::structured;
  info.arity = static_cast<std::int8_t>(inputs);
  info.attributes = attributes;
  info.infer = shape;
  info.cpu = cpu;
  info.cuda = cuda;
  info.gradient = gradient;
  info.n_outputs = static_cast<std::uint8_t>(outputs);
  return info;
}

}  // namespace

// Called once by the dispatcher, before the first call.
void fill_builtin_ops(OpInfo* table) {
#define BRRR_UNARY(name, types, rule, low, high, expression, ...)                            \
  *table++ = pointwise(#name, 1, dtype_sets::types, DTypeRule::rule, low, high, #expression, \
                       gradients::name);
#define BRRR_BINARY(name, types, rule, low, high, expression, ...)                           \
  *table++ = pointwise(#name, 2, dtype_sets::types, DTypeRule::rule, low, high, #expression, \
                       gradients::name);
#define BRRR_TERNARY(name, types, rule, low, high, expression, ...)                          \
  *table++ = pointwise(#name, 3, dtype_sets::types, DTypeRule::rule, low, high, #expression, \
                       gradients::name);
#define BRRR_REDUCTION(name, types, rule, map, identity, combine, finish, ...)               \
  *table++ = reduction(#name, dtype_sets::types, DTypeRule::rule, #map, #identity, #combine, \
                       #finish, gradients::name);
#define BRRR_ARG_REDUCTION(name, before) *table++ = arg_reduction(#name, #before);
#define BRRR_VIEW(name, attributes, ...) \
  *table++ = view(#name, attributes, views::name, gradients::name);
#define BRRR_STRUCTURED(name, inputs, attributes, ...)                                            \
  *table++ = structured(#name, inputs, attributes, infer::name, on_cpu::name, BRRR_ON_CUDA(name), \
                        gradients::name);
#define BRRR_STRUCTURED_OUTPUTS(name, outputs, inputs, attributes, ...)                           \
  *table++ = structured(#name, inputs, attributes, infer::name, on_cpu::name, BRRR_ON_CUDA(name), \
                        gradients::name, outputs);
#include "brrr/dispatch/ops.def"
}

}  // namespace brrr::detail
