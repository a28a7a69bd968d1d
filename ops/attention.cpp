#include "brrr/ops/attention.h"

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/kernels.h"

namespace brrr {

namespace on_cuda {
void attention(const Call& call, Tensor* outputs);
void attention_gradient(const Call& call, Tensor* outputs);
void attention_mask_tiles(const Call& call, Tensor* outputs);
}  // namespace on_cuda

namespace {

using std::int64_t;

int64_t flops_of(const Call& call) {
  return attention_flops(call.op, call.input(0).numel(), call.input(1).size(-2));
}

Op add(const char* name, int arity, int outputs, const char* attributes, InferFn infer, CostFn cost,
       KernelFn cuda) {
  OpInfo info;
  info.arity = static_cast<std::int8_t>(arity);
  info.n_outputs = static_cast<std::uint8_t>(outputs);
  info.attributes = attributes;
  info.infer = infer;
  info.cost = cost;
  info.cuda = cuda;
  return add_op(std::move(info), name);
}

Dims without_width(const Tensor& x) {
  Dims shape(x.shape());
  shape.resize(shape.size() - 1);
  return shape;
}

}  // namespace

Op attention_op() {
  static const Op op = add(
      "fused_attention", -1, 2, "scale:double heads_inside",
      [](const Call& call, OutputSpec* outputs) {
        const Tensor& query = call.input(0);
        outputs[0] = infer::like(query);
        if (call.attrs[1].i()) {
          Dims& shape = outputs[0].shape;
          std::swap(shape[shape.size() - 2], shape[shape.size() - 3]);
        }
        outputs[1] = {f32, query.device(), without_width(query)};
      },
      [](const Call& call, std::span<const Tensor> outputs) {
        return Cost{flops_of(call), operand_bytes(call, outputs)};
      },
      BRRR_ON_CUDA(attention));
  return op;
}

Op attention_gradient_op() {
  static const Op op = add(
      "fused_attention_gradient", -1, 4, "scale:double query_scale:double",
      [](const Call& call, OutputSpec* outputs) {
        const Tensor& query = call.input(0);
        for (int i = 0; i < 3; ++i) outputs[i] = infer::like(call.input(i));
        outputs[3] = {f32, query.device(), without_width(query)};
      },
      [](const Call& call, std::span<const Tensor> outputs) {
        return Cost{flops_of(call), operand_bytes(call, outputs)};
      },
      BRRR_ON_CUDA(attention_gradient));
  return op;
}

Op attention_mask_tiles_op() {
  static const Op op = add(
      "fused_attention_mask", 1, 1, "",
      [](const Call& call, OutputSpec* outputs) {
        outputs[0] = infer::like(call.input(0), i32);
        Dims& shape = outputs[0].shape;
        for (int d = shape.size() - 2; d < shape.size(); ++d)
          shape[d] = (shape[d] + 63) / 64;  // as the kernel has them
      },
      [](const Call& call, std::span<const Tensor> outputs) {
        return Cost{0, operand_bytes(call, outputs)};
      },
      BRRR_ON_CUDA(attention_mask_tiles));
  return op;
}

// Both kernels of the gradient compute the scores and their gradient again.
std::int64_t attention_flops(Op op, std::int64_t query_elements, std::int64_t key_rows) {
  const std::int64_t products = op == attention_op() ? 2 : 7;
  return products * 2 * query_elements * key_rows;
}

bool is_attention(Op op) { return op == attention_op() || op == attention_gradient_op(); }

SoftmaxStep softmax_step(const Call& call) {
  switch (call.op) {
    case Op::where: return SoftmaxStep::masking;
    case Op::max: return SoftmaxStep::largest;
    case Op::exp: return SoftmaxStep::exponential;
    case Op::sum: return SoftmaxStep::total;
    default: return SoftmaxStep::none;
  }
}

#if !BRRR_HAS_CUDA
bool supports_attention(DType, int64_t, Device) { return false; }
#endif

}  // namespace brrr
