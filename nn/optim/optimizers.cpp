#include "nn/optim/optimizers.h"

#include "tensor/error.h"

namespace brrr::optim {

Transformation sgd(const LearningRate& rate, const SgdOptions& options) {
  if (options.momentum.number() == 0.0) {
    if (options.nesterov) fail("[sgd] expected a momentum above 0 for Nesterov's, got 0");
    return scale_by_learning_rate(rate);
  }
  return chain(trace(options.momentum, options.nesterov), scale_by_learning_rate(rate));
}

Transformation adam(const LearningRate& rate, const AdamOptions& options) {
  return chain(scale_by_adam(options), scale_by_learning_rate(rate));
}

Transformation adamw(const LearningRate& rate, const Coefficient& weight_decay,
                     const AdamOptions& options) {
  return chain(scale_by_adam(options), add_decayed_weights(weight_decay),
               scale_by_learning_rate(rate));
}

Transformation lion(const LearningRate& rate, const LionOptions& options) {
  return chain(scale_by_lion(options.beta1, options.beta2),
               add_decayed_weights(options.weight_decay), scale_by_learning_rate(rate));
}

}  // namespace brrr::optim
