// Pointwise ops on CUDA: one generated kernel for each op, types and kind of layout.
#include "brrr/ops/cuda/elementwise.h"
#include "brrr/ops/jit/add_call.h"
#include "brrr/ops/kernels.h"

namespace brrr::on_cuda {
namespace {

jit::Body make(const void* of) {
  const auto& [call, output] = *static_cast<const std::pair<const Call*, const Tensor*>*>(of);
  std::vector<DType> inputs;
  for (std::uint32_t i = 0; i < call->n_inputs; ++i)
    inputs.push_back(call->input(static_cast<int>(i)).dtype());
  return jit::pointwise_body(op_info(call->op), call->dtype, call->scalars, inputs,
                             output->dtype());
}

}  // namespace

void pointwise(const Call& call, Tensor* outputs) {
  Elementwise work;
  work.add_output(outputs[0]);
  std::uint64_t what = static_cast<std::uint64_t>(call.op) |
                       static_cast<std::uint64_t>(call.dtype) << 16 |
                       static_cast<std::uint64_t>(call.scalars & 7u) << 19 |
                       static_cast<std::uint64_t>(work.operands[0]->word.dtype()) << 22;
  int at = 25;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i, at += 3) {
    const Tensor& input = call.input(static_cast<int>(i));
    work.add_input(input);
    what |= static_cast<std::uint64_t>(input.dtype()) << at;
  }
  if (call.scalars) {
    const DType type = jit::register_dtype(call.dtype);
    const bool selects = op_info(call.op).rule == DTypeRule::select;
    for (int i = 0; i < call.n_attrs; ++i) {
      if (!call.is_scalar(i)) continue;
      work.add_scalar(jit::scalar_bits(call.attrs[i], is_floating(call.dtype),
                                       selects && i == 0 ? boolean : type));
    }
  }
  work.what = what;
  const std::pair<const Call*, const Tensor*> of(&call, outputs);
  work.make = make;
  work.of = &of;
  run_elementwise(work);
}

}  // namespace brrr::on_cuda
