#include "brrr/measure/op_cost.h"

#include "brrr/dispatch/expression.h"
#include "brrr/dispatch/op_info.h"

namespace brrr::measure {
namespace {

std::int64_t distinct_bytes(const Tensor& x) {
  std::int64_t elements = 1;
  for (int d = 0; d < x.rank(); ++d) {
    if (x.stride(d) != 0 || x.size(d) == 0) elements *= x.size(d);
  }
  return elements * static_cast<std::int64_t>(size_of(x.dtype()));
}

std::int64_t flops_of_call(const Call& call, const Tensor& output) {
  const OpInfo& info = op_info(call.op);
  if (info.kind == OpKind::pointwise) return flops_of(info.expression) * output.numel();
  if (info.kind == OpKind::reduction) {
    return (flops_of(info.expression) + flops_of(info.combine)) * call.input(0).numel() +
           flops_of(info.finish) * output.numel();
  }
  if (info.kind == OpKind::arg_reduction) return call.input(0).numel();
  if (call.op == Op::matmul || call.op == Op::affine) {
    const std::int64_t inner = call.input(0).shape().back();
    return (2 * inner + (call.op == Op::affine ? 1 : 0)) * output.numel();
  }
  if (call.op == Op::adam_step) return 14 * output.numel();
  return 0;
}

}  // namespace

bool does_work(const Call& call) {
  return op_info(call.op).kind != OpKind::view && call.op != Op::empty;
}

Cost cost_of(const Call& call, std::span<const Tensor> outputs) {
  Cost cost;
  if (!does_work(call)) return cost;
  cost.flops = flops_of_call(call, outputs[0]);
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    if (call.inputs[i]->defined()) cost.bytes += distinct_bytes(*call.inputs[i]);
  }
  for (const Tensor& output : outputs) cost.bytes += distinct_bytes(output);
  return cost;
}

}  // namespace brrr::measure
