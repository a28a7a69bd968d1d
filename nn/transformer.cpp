#include "brrr/nn/transformer.h"

#include <fmt/format.h>

#include "brrr/nn/init.h"
#include "brrr/tensor/fail.h"

namespace brrr::nn {

TransformerBlock::TransformerBlock(std::int64_t width, int heads, Options options, bool causal,
                                   double dropout)
    : Module("block"),
      norm1(width, options),
      attention(width, heads, options, causal, dropout),
      norm2(width, options),
      mlp({width, 4 * width, width}, options),
      dropout(dropout) {
  child("norm1", norm1);
  child("attention", attention);
  child("norm2", norm2);
  child("mlp", mlp);
  child("dropout", this->dropout);
}

Tensor TransformerBlock::forward(const Tensor& x) {
  const Tensor mixed = x + dropout(attention(norm1(x)));
  return mixed + dropout(mlp(norm2(mixed)));
}

namespace {

const TransformerSizes& checked_sizes(const TransformerSizes& sizes) {
  if (sizes.vocabulary < 1 || sizes.length < 1 || sizes.width < 1 || sizes.layers < 0) {
    fail(
        "[transformer] expected sizes of at least 1, got vocabulary {}, length {}, width {} and {} "
        "layers",
        sizes.vocabulary, sizes.length, sizes.width, sizes.layers);
  }
  return sizes;
}

}  // namespace

Transformer::Transformer(const TransformerSizes& sizes, Options options, double dropout)
    : Module("transformer"),
      tokens(checked_sizes(sizes).vocabulary, sizes.width, options),
      places(sizes.length, sizes.width, options),
      dropout(dropout),
      norm(sizes.width, options),
      head(sizes.width, sizes.vocabulary, options, false) {
  for (Tensor* weight : {&tokens.weight, &places.weight, &head.weight}) {
    init::normal_(*weight, 0, 0.02);
  }
  child("tokens", tokens);
  child("places", places);
  child("dropout", this->dropout);
  for (int i = 0; i < sizes.layers; ++i) {
    child(fmt::format("blocks.{}", i),
          blocks.emplace_back(sizes.width, sizes.heads, options, true, dropout));
  }
  child("norm", norm);
  child("head", head);
}

Tensor Transformer::forward(const Tensor& index) {
  const std::int64_t longest = places.weight.size(0);
  if (!index.defined() || category_of(index.dtype()) != Category::integer || index.rank() != 2 ||
      index.size(1) > longest) {
    refuse_input(fmt::format("of integers [batch, length up to {}]", longest), index);
  }
  Tensor h = dropout(tokens(index) + narrow(places.weight, 0, 0, index.size(1)));
  for (TransformerBlock& block : blocks) h = block(h);
  return head(norm(h));
}

}  // namespace brrr::nn
