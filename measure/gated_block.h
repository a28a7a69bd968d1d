// A block of a gated MLP with a norm and dropout: the model of `brrr bench remat` whose activations
// are mostly pointwise.
#pragma once

#include <cstdint>

#include <brrr/nn/dropout.h>
#include <brrr/nn/linear.h>
#include <brrr/nn/norm.h>
#include <brrr/ops/functions.h>

namespace brrr::measure {

// x + dropout(silu(gate(n)) * up(n)) with n = norm(x).
class GatedBlock : public nn::Module {
 public:
  GatedBlock(std::int64_t width, Options options)
      : Module("gated_block"),
        norm_(width, options),
        gate_(width, width, options),
        up_(width, width, options) {
    child("norm", norm_);
    child("gate", gate_);
    child("up", up_);
    child("drop", drop_);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor n = norm_(x);
    return x + drop_(silu(gate_(n)) * up_(n));
  }

 private:
  nn::LayerNorm norm_;
  nn::Linear gate_, up_;
  nn::Dropout drop_{0.1};
};

}  // namespace brrr::measure
