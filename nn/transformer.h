// A decoder-only transformer: logits of the next token at each position.
#pragma once

#include <deque>

#include <brrr/nn/attention.h>
#include <brrr/nn/dropout.h>
#include <brrr/nn/embedding.h>
#include <brrr/nn/mlp.h>
#include <brrr/nn/norm.h>

namespace brrr::nn {

// x + attention(norm1(x)), then x + mlp(norm2(x)); the MLP's hidden layer has four times the width.
class TransformerBlock : public Module {
 public:
  TransformerBlock(std::int64_t width, int heads, Options options = {}, bool causal = true,
                   double dropout = 0);
  Tensor forward(const Tensor& x) override;  // [batch, length, width]

  LayerNorm norm1;
  MultiHeadAttention attention;
  LayerNorm norm2;
  MLP mlp;
  Dropout dropout;  // of both residual branches
};

struct TransformerSizes {
  std::int64_t vocabulary = 0;
  std::int64_t length = 0;  // the longest sequence
  std::int64_t width = 0;
  int heads = 1;
  int layers = 1;
};

// Embeddings of tokens and positions (`places`), blocks, a norm, a head. Embeddings and the head
// are initialized normal with deviation 0.02, so that the first predictions are near uniform.
class Transformer : public Module {
 public:
  explicit Transformer(const TransformerSizes& sizes, Options options = {}, double dropout = 0);
  Tensor forward(const Tensor& tokens) override;  // [batch, length] to [batch, length, vocabulary]

  Embedding tokens, places;
  Dropout dropout;
  std::deque<TransformerBlock> blocks;
  LayerNorm norm;
  Linear head;
};

}  // namespace brrr::nn
