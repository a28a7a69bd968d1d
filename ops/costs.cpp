// The cost of calls of the table's rows: the row's arithmetic, and the bytes of all operands, each
// once.
#include "brrr/dispatch/op_info.h"
#include "brrr/ops/attention.h"
#include "brrr/ops/kernels.h"

namespace brrr::cost {
namespace {

using Outputs = std::span<const Tensor>;

Cost of(std::int64_t flops, const Call& call, Outputs outputs) {
  return {flops, operand_bytes(call, outputs)};
}

// A matrix product: a multiplication and an addition for each element of the inner dimension.
std::int64_t product_flops(const Call& call, const Tensor& y) {
  return 2 * call.input(0).shape().back() * y.numel();
}

std::int64_t flops_of_attention(const Call& call) {
  return attention_flops(call.op, call.input(0).numel(), call.input(1).size(-2));
}

}  // namespace

Cost pointwise(const Call& call, Outputs outputs) {
  return of(op_info(call.op).element_flops * outputs[0].numel(), call, outputs);
}
Cost formula(const Call& call, Outputs outputs) { return pointwise(call, outputs); }

Cost reduction(const Call& call, Outputs outputs) {
  const OpInfo& info = op_info(call.op);
  return of(info.element_flops * call.input(0).numel() + info.result_flops * outputs[0].numel(),
            call, outputs);
}

Cost arg_reduction(const Call& call, Outputs outputs) {
  return of(call.input(0).numel(), call, outputs);
}

#define BRRR_STRUCTURED(name, inputs, attributes, effect, algebra, flops, ...) \
  Cost name(const Call& call, Outputs outputs) {                               \
    [[maybe_unused]] const Tensor& y = outputs[0];                             \
    return of(flops, call, outputs);                                           \
  }
#define BRRR_FUSED(name, inputs, outputs_, attributes, flops) \
  Cost name(const Call& call, Outputs outputs) { return of(flops, call, outputs); }
#include "brrr/dispatch/ops.def"

}  // namespace brrr::cost
