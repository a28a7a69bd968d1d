// Scaled dot-product attention as a function, and multi-head self-attention as a module.
#pragma once

#include <optional>

#include <brrr/nn/linear.h>

namespace brrr::nn {

struct AttentionOptions {
  bool causal = false;  // query i attends to keys up to i
  Tensor mask = {};  // bool, broadcast to [..., queries, keys]; true: the query attends to the key
  double dropout = 0;                // of the weights
  std::optional<double> scale = {};  // of the scores; default: 1/√width
};

// softmax(query keyᵀ · scale) value: query is [..., queries, width], key [..., keys, width], value
// [..., keys, values]. A query that attends to no key gives NaN, as in PyTorch.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

// Self-attention. One projection computes queries, keys and values, in this order.
class MultiHeadAttention : public Module {
 public:
  MultiHeadAttention(std::int64_t width, int heads, Options options = {}, bool causal = true,
                     double dropout = 0);
  Tensor forward(const Tensor& x) override;  // [batch, length, width]

  Linear qkv;  // [3 width, width]
  Linear out;  // [width, width]

 private:
  Tensor mask_for(const Tensor& x);

  int heads_;
  bool causal_;
  double dropout_;
  Tensor mask_;  // cached for the last length and device
};

}  // namespace brrr::nn
