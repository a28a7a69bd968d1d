#include "brrr/ops/attention.h"

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/kernels.h"

namespace brrr {
namespace {

using std::int64_t;

Dims without_width(const Tensor& x) {
  Dims shape(x.shape());
  shape.resize(shape.size() - 1);
  return shape;
}

}  // namespace

void infer::fused_attention(const Call& call, OutputSpec* outputs) {
  const Tensor& query = call.input(0);
  outputs[0] = like(query);
  if (call.attrs[1].i()) {
    Dims& shape = outputs[0].shape;
    std::swap(shape[shape.size() - 2], shape[shape.size() - 3]);
  }
  outputs[1] = {f32, query.device(), without_width(query)};
}

void infer::fused_attention_gradient(const Call& call, OutputSpec* outputs) {
  const Tensor& query = call.input(0);
  for (int i = 0; i < 3; ++i) outputs[i] = like(call.input(i));
  outputs[3] = {f32, query.device(), without_width(query)};
}

void infer::fused_attention_mask(const Call& call, OutputSpec* outputs) {
  outputs[0] = like(call.input(0), i32);
  Dims& shape = outputs[0].shape;
  for (int d = shape.size() - 2; d < shape.size(); ++d)
    shape[d] = (shape[d] + 63) / 64;  // tiles of 64 by 64
}

Call attention_call(double scale, bool heads_inside) {
  Call call(Op::fused_attention, nullptr, 0);
  call.add_attr(Attr::of(scale));
  call.add_attr(heads_inside);
  return call;
}

Call attention_gradient_call(double scale, double query_scale) {
  Call call(Op::fused_attention_gradient, nullptr, 0);
  call.add_attr(Attr::of(scale));
  call.add_attr(Attr::of(query_scale));
  return call;
}

Call attention_mask_call() { return {Op::fused_attention_mask, nullptr, 0}; }

// Both kernels of the gradient compute the scores and their gradient again.
int64_t attention_flops(Op op, int64_t query_elements, int64_t key_rows) {
  const int64_t products = op == Op::fused_attention ? 2 : 7;
  return products * 2 * query_elements * key_rows;
}

bool is_attention_gradient(Op op) { return op == Op::fused_attention_gradient; }

bool is_attention(Op op) { return op == Op::fused_attention || is_attention_gradient(op); }

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
