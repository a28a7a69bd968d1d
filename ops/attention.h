// Attention in one kernel, and its gradient in two: what fused graphs on CUDA have in place of two
// matrix products with a softmax between them (graph/fuse_attention.cpp). Scores and weights never
// reach memory.
#pragma once

#include <cstdint>

#include <brrr/dispatch/call.h>
#include <brrr/tensor/device.h>
#include <brrr/tensor/dtype.h>

namespace brrr {

// out, log_sum = attention(query, key, value, [mask, mask_tiles], scale, heads_inside): the softmax
// of scale * query key^T over rows, times value. Operands are [outer, inner, rows, width], either
// batch dimension may be absent; `heads_inside`: out is [outer, rows, inner, width]. log_sum is
// what the gradient computes the weights from.
inline constexpr Op kAttentionOp = Op::fused_attention;
// d_query, d_key, d_value, delta = (query, key, value, out, log_sum, d_out, [mask, mask_tiles],
// scale, query_scale); out has its rows where the query has them. `query_scale` takes the place of
// the scale in d_query: less than all of it where d_query is that of a multiple of the query.
inline constexpr Op kAttentionGradientOp = Op::fused_attention_gradient;
// What a mask [..., queries, keys] says of its tiles: all false, some true, all true.
inline constexpr Op kAttentionMaskTilesOp = Op::fused_attention_mask;

bool is_attention(Op op);
// Of an attention or its gradient.
std::int64_t attention_flops(Op op, std::int64_t query_elements, std::int64_t key_rows);
// Whether there are kernels for rows of this width: f32 is multiplied as TF32.
bool supports_attention(DType dtype, std::int64_t width, Device device);

// What a call may be of a softmax over rows.
enum class SoftmaxStep : std::uint8_t { none, masking, largest, exponential, total };
SoftmaxStep softmax_step(const Call& call);

}  // namespace brrr
