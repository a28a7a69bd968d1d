// What calls of the table's rows cost. Bytes are those of all operands, each once.
#include "brrr/dispatch/op_info.h"
#include "brrr/ops/kernels.h"

namespace brrr::cost {
namespace {

using Outputs = std::span<const Tensor>;

Cost of(std::int64_t flops, const Call& call, Outputs outputs) {
  return {flops, operand_bytes(call, outputs)};
}

// A product of matrices: a multiplication and an addition for each element of the inner dimension.
std::int64_t product_flops(const Call& call, Outputs outputs) {
  return 2 * call.input(0).shape().back() * outputs[0].numel();
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

Cost matmul(const Call& call, Outputs outputs) {
  return of(product_flops(call, outputs), call, outputs);
}
Cost affine(const Call& call, Outputs outputs) {
  return of(product_flops(call, outputs) + outputs[0].numel(), call, outputs);
}

// Ops that move bytes, or draw them.
#define BRRR_MOVES(name) \
  Cost name(const Call& call, Outputs outputs) { return of(0, call, outputs); }
BRRR_MOVES(copy)
BRRR_MOVES(empty)
BRRR_MOVES(full)
BRRR_MOVES(arange)
BRRR_MOVES(cat)
BRRR_MOVES(cumsum)
BRRR_MOVES(gather)
BRRR_MOVES(index_select)
BRRR_MOVES(scatter_add)
BRRR_MOVES(unslice)
BRRR_MOVES(triangle)
BRRR_MOVES(checked)
BRRR_MOVES(uniform)
BRRR_MOVES(normal)
#undef BRRR_MOVES

}  // namespace brrr::cost
