// The table of built-in ops, put together from ops.def and the kernels that its rows name.
#include "brrr/dispatch/op_info.h"
#include "brrr/ops/kernels.h"

namespace brrr::core {
namespace {

OpInfo pointwise(const char* name, int arity, DTypeSet types, DTypeRule rule, double low,
                 double high, Expression expression, const GradientRule& gradient) {
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
  info.cost = cost::pointwise;
  info.cpu = on_cpu::pointwise;
  info.cuda = BRRR_ON_CUDA(pointwise);
  info.gradient = gradient;
  return info;
}

// The row of `cast`. Its kernels also serve conversions in `copy`.
OpInfo conversion(const char* name, KernelFn cpu, KernelFn cuda, const GradientRule& gradient) {
  OpInfo info = pointwise(name, 1, dtype_sets::all, DTypeRule::converts, -2, 2, "a", gradient);
  info.cpu = cpu;
  info.cuda = cuda;
  return info;
}

OpInfo formula(const char* name, Formula body) {
  OpInfo info;
  info.name = name;
  info.kind = OpKind::formula;
  info.types = dtype_sets::floats;
  info.arity = -1;
  info.n_outputs = static_cast<std::uint8_t>(body.written);
  for (int i = body.elements; i < static_cast<int>(body.operands.size()); ++i)
    info.attributes += body.operands[i] + ":double ";
  info.attributes += "tensors";
  info.formula = std::move(body);
  info.infer = infer::formula;
  info.cost = cost::formula;
  info.cpu = on_cpu::formula;
  info.cuda = BRRR_ON_CUDA(formula);
  info.gradient.run = [](Gradient&) {};
  return info;
}

OpInfo reduction(const char* name, DTypeSet types, DTypeRule rule, Expression map,
                 Expression identity, Expression combine, Expression finish,
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
  info.attributes = "dims:set keepdim";
  info.infer = infer::reduction;
  info.cost = cost::reduction;
  info.cpu = on_cpu::reduction;
  info.cuda = BRRR_ON_CUDA(reduction);
  info.gradient = gradient;
  return info;
}

OpInfo arg_reduction(const char* name, Expression before) {
  OpInfo info;
  info.name = name;
  info.kind = OpKind::arg_reduction;
  info.arity = 1;
  info.expression = before;
  info.attributes = "dim keepdim";
  info.infer = infer::arg_reduction;
  info.cost = cost::arg_reduction;
  info.cpu = on_cpu::arg_reduction;
  info.cuda = BRRR_ON_CUDA(arg_reduction);
  return info;
}

OpInfo view(const char* name, int inputs, const char* attributes, ViewFn rule,
            const GradientRule& gradient) {
  OpInfo info;
  info.name = name;
  info.kind = OpKind::view;
  info.arity = static_cast<std::int8_t>(inputs);
  info.attributes = attributes;
  info.view = rule;
  info.gradient = gradient;
  return info;
}

OpInfo structured(const char* name, int inputs, const char* attributes, Effect effect,
                  Algebra algebra, InferFn shape, CostFn cost, KernelFn cpu, KernelFn cuda,
                  const GradientRule& gradient) {
  OpInfo info;
  info.name = name;
  info.kind = OpKind::structured;
  info.effect = effect;
  info.algebra = algebra;
  info.arity = static_cast<std::int8_t>(inputs);
  info.attributes = attributes;
  info.infer = shape;
  info.cost = cost;
  info.cpu = cpu;
  info.cuda = cuda;
  info.gradient = gradient;
  return info;
}

OpInfo fused(const char* name, int inputs, int outputs, const char* attributes, InferFn shape,
             CostFn cost, KernelFn cuda) {
  OpInfo info;
  info.name = name;
  info.arity = static_cast<std::int8_t>(inputs);
  info.n_outputs = static_cast<std::uint8_t>(outputs);
  info.attributes = attributes;
  info.infer = shape;
  info.cost = cost;
  info.cuda = cuda;
  return info;
}

}  // namespace

// Before any static initializer, which may call ops: their order is undefined in a static library.
[[gnu::constructor(102)]] void fill_builtin_ops() {
  OpInfo* table = detail::builtin_rows();
#define BRRR_POINTWISE(arity, name, types, rule, low, high, expression, ...)                     \
  *table++ = pointwise(#name, arity, dtype_sets::types, DTypeRule::rule, low, high, #expression, \
                       gradients::name);
#define BRRR_UNARY(...) BRRR_POINTWISE(1, __VA_ARGS__)
#define BRRR_BINARY(...) BRRR_POINTWISE(2, __VA_ARGS__)
#define BRRR_TERNARY(...) BRRR_POINTWISE(3, __VA_ARGS__)
#define BRRR_REDUCTION(name, types, rule, map, identity, combine, finish, ...)               \
  *table++ = reduction(#name, dtype_sets::types, DTypeRule::rule, #map, #identity, #combine, \
                       #finish, gradients::name);
#define BRRR_ARG_REDUCTION(name, before) *table++ = arg_reduction(#name, #before);
#define BRRR_FOURTH(_1, _2, _3, fourth, ...) fourth
#define BRRR_VIEW(name, attributes, ...) \
  *table++ =                             \
      view(#name, BRRR_FOURTH(__VA_ARGS__, 3, 2, 1, 0), attributes, views::name, gradients::name);
#define BRRR_CONVERSION(name, ...) \
  *table++ = conversion(#name, on_cpu::name, BRRR_ON_CUDA(name), gradients::name);
#define BRRR_STRUCTURED(name, inputs, attributes, effect, algebra, flops, ...)                    \
  *table++ = structured(#name, inputs, attributes, Effect::effect, Algebra::algebra, infer::name, \
                        cost::name, on_cpu::name, BRRR_ON_CUDA(name), gradients::name);
#define BRRR_FUSED(name, inputs, outputs, attributes, flops) \
  *table++ = fused(#name, inputs, outputs, attributes, infer::name, cost::name, BRRR_ON_CUDA(name));
#define BRRR_FORMULA(name, written, read, numbers, ...) \
  *table++ = formula(#name, parse_formula(#written, #read, #numbers, #__VA_ARGS__));
#include "brrr/dispatch/ops.def"
  for (OpInfo* row = detail::builtin_rows(); row != table; ++row) detail::derive_facts(*row);
}

}  // namespace brrr::core
