#include "cli/toy.h"

#include "brrr/nn/losses.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/transformer.h"

namespace brrr::cli {

Toy::Toy(const ToyOptions& o) {
  const Options here{.dtype = o.dtype, .device = o.device};
  Dims shape{o.batch, o.width};
  const nn::MLPOptions mlp_here{.dtype = o.dtype, .device = o.device, .activation = o.activation};
  if (o.model == "mlp" && o.residual) {
    make_blocks(o.layers, [&](nn::Sequential& blocks) -> nn::Module& {
      return blocks.add<nn::ResidualBlock>(o.width, mlp_here);
    });
  } else if (o.model == "mlp") {
    auto mlp = std::make_unique<nn::MLP>(
        std::vector<std::int64_t>(static_cast<std::size_t>(o.layers) + 1, o.width), mlp_here);
    for (nn::Linear& layer : mlp->layers) {
      const bool first = layers_.empty();
      layers_.push_back([&layer, first, activation = o.activation](const Tensor& h) {
        return layer(first ? h : nn::activate(activation, h));
      });
    }
    module_ = std::move(mlp);
  } else {
    make_blocks(o.layers, [&](nn::Sequential& blocks) -> nn::Module& {
      return blocks.add<nn::TransformerBlock>(o.width, o.heads, here);
    });
    shape = {o.batch, o.seq, o.width};
  }
  inputs_ = randn(shape, here);
  targets_ = randn(shape, here);
}

void Toy::make_blocks(int count, const std::function<nn::Module&(nn::Sequential&)>& add) {
  auto blocks = std::make_unique<nn::Sequential>();
  for (int i = 0; i < count; ++i) {
    layers_.push_back([&block = add(*blocks)](const Tensor& h) { return block(h); });
  }
  module_ = std::move(blocks);
}

Tensor Toy::loss() {
  Tensor h = inputs_;
  for (const Layer& layer : layers_) h = layer(h);
  return nn::mse_loss(h, targets_);
}

}  // namespace brrr::cli
