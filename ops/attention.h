// Attention in one kernel, and its gradient in two: ops that fused graphs on CUDA use in place of
// two matrix products around a softmax (graph/fuse_attention.cpp). Scores and weights are never
// stored to memory.
#pragma once

#include <cstdint>

#include <brrr/dispatch/call.h>
#include <brrr/tensor/device.h>
#include <brrr/tensor/dtype.h>

namespace brrr {

// The calls, without operands and dtype.
//
// out, log_sum = attention(query, key, value, [mask, mask_tiles]): the softmax of
// scale * query key^T over rows, times value. Operands are [outer, inner, rows, width], either
// batch dimension may be absent; `heads_inside`: out is [outer, rows, inner, width].
Call attention_call(double scale, bool heads_inside);
// d_query, d_key, d_value, delta = (query, key, value, out, log_sum, d_out, [mask, mask_tiles]);
// out has the layout of the query. The weights are computed again from log_sum, the logarithm of
// each row's sum of exponentials. d_query is multiplied by `query_scale` in place of the scale:
// they differ if the graph scales the query before the product, and d_query is the gradient of the
// scaled query.
Call attention_gradient_call(double scale, double query_scale);
// Classifies the tiles of a mask [..., queries, keys]: all false, some true, all true.
Call attention_mask_call();

bool is_attention(Op op);
bool is_attention_gradient(Op op);
// The FLOPs of an attention or its gradient.
std::int64_t attention_flops(Op op, std::int64_t query_elements, std::int64_t key_rows);
// Whether there are kernels for rows of this width. They multiply f32 as TF32.
bool supports_attention(DType dtype, std::int64_t width, Device device);

// The role of a call in a softmax over rows.
enum class SoftmaxStep : std::uint8_t { none, masking, largest, exponential, total };
SoftmaxStep softmax_step(const Call& call);

}  // namespace brrr
