#include "brrr/nn/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_context.h"

namespace brrr::nn {
namespace {

Tensor causal_mask(std::int64_t queries, std::int64_t keys, Device device) {
  const RangeOptions whole{.dtype = i64, .device = device};
  const Tensor query = arange(queries, whole), key = arange(keys, whole);
  return ge(unsqueeze(query, 1), key);
}

void check_shapes(const Tensor& query, const Tensor& key, const Tensor& value) {
  const bool matrices = query.defined() && key.defined() && value.defined() && query.rank() >= 2 &&
                        key.rank() >= 2 && value.rank() >= 2;
  if (matrices && query.size(-1) == key.size(-1) && key.size(-2) == value.size(-2)) return;
  fail(
      "[scaled_dot_product_attention] expected query [..., queries, width], key [..., keys, width] "
      "and value [..., keys, values], got {}, {} and {}",
      query.describe(), key.describe(), value.describe());
}

void check_dropout(const char* name, double p) {
  if (!(p >= 0 && p <= 1)) fail("[{}] expected a dropout in [0, 1], got {}", name, p);
}

std::int64_t checked_width(std::int64_t width, int heads, double dropout) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 3;
  if (width < 0 || width > kMost || heads < 1 || width % heads != 0) {
    fail("[attention] expected a width that is a multiple of the heads, got {} and {}", width,
         heads);
  }
  check_dropout("attention", dropout);
  return width;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  const CompositeScope scope("scaled_dot_product_attention");
  check_shapes(query, key, value);
  check_dropout("scaled_dot_product_attention", options.dropout);
  const double scale = options.scale.value_or(
      1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(query.size(-1), 1))));
  // Scaling the queries moves fewer bytes than scaling the scores.
  Tensor scores = matmul(query * scale, transpose(key, -2, -1));
  constexpr double never = -std::numeric_limits<double>::infinity();
  if (options.mask.defined()) scores = where(options.mask, scores, never);
  if (options.causal) {
    scores = where(causal_mask(query.size(-2), key.size(-2), query.device()), scores, never);
  }
  Tensor weights = softmax(scores, -1);
  if (options.dropout > 0) weights = dropout(weights, options.dropout);
  return matmul(weights, value);
}

MultiHeadAttention::MultiHeadAttention(std::int64_t width, int heads, Options options, bool causal,
                                       double dropout)
    : Module("attention"),
      qkv(width, 3 * checked_width(width, heads, dropout), options),
      out(width, width, options),
      heads_(heads),
      causal_(causal),
      dropout_(dropout) {
  child("qkv", qkv);
  child("out", out);
}

Tensor MultiHeadAttention::forward(const Tensor& x) {
  const std::int64_t width = out.weight.size(0);
  expect_input(x, width, out.weight);
  if (x.rank() != 3) {
    refuse_input(fmt::format("{}[batch, length, {}]", name_of(x.dtype()), width), x);
  }
  const std::int64_t batch = x.size(0), length = x.size(1);
  // [3, batch, head, length, width of a head]
  const Tensor parts =
      permute(view(qkv(x), {batch, length, 3, heads_, width / heads_}), {2, 0, 3, 1, 4});
  const Tensor mixed =
      scaled_dot_product_attention(select(parts, 0, 0), select(parts, 0, 1), select(parts, 0, 2),
                                   {.mask = mask_for(x), .dropout = training() ? dropout_ : 0});
  return out(reshape(permute(mixed, {0, 2, 1, 3}), {batch, length, width}));
}

// Computed once per length and device. A mask without values (of a trace) is not cached.
Tensor MultiHeadAttention::mask_for(const Tensor& x) {
  if (!causal_) return {};
  if (mask_.defined() && mask_.size(0) == x.size(1) && mask_.device() == x.device()) return mask_;
  Tensor mask = causal_mask(x.size(1), x.size(1), x.device());
  if (!mask.is_meta()) mask_ = mask;
  return mask;
}

}  // namespace brrr::nn
