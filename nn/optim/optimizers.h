// The standard optimizers, as chains of public transformations. Defaults are optax's.
#pragma once

#include <brrr/nn/optim/moments.h>
#include <brrr/nn/optim/scale.h>

namespace brrr::optim {

struct SgdOptions {
  Coefficient momentum = 0;
  bool nesterov = false;
};
// p -= rate * trace. For L2 regularization: chain(add_decayed_weights(l2), sgd(rate)).
Transformation sgd(const LearningRate& rate, const SgdOptions& options = {});

Transformation adam(const LearningRate& rate, const AdamOptions& options = {});

// Adam with decoupled weight decay: p -= rate * (adam + weight_decay * p). PyTorch's default decay
// is 0.01.
Transformation adamw(const LearningRate& rate, const Coefficient& weight_decay = 1e-4,
                     const AdamOptions& options = {});

struct LionOptions {
  Coefficient beta1 = 0.9;
  Coefficient beta2 = 0.99;
  Coefficient weight_decay = 1e-3;
};
Transformation lion(const LearningRate& rate, const LionOptions& options = {});

}  // namespace brrr::optim
