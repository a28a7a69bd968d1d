#include "brrr/nn/optim/optimizers.h"

#include "brrr/tensor/error.h"

namespace brrr::optim {
namespace {

// A chain that begins with scale_by_adam and ends with scale_by_learning_rate; a step on a
// parameter is one pass over its bytes.
Transformation adam_chain(std::vector<Transformation> parts, const LearningRate& rate,
                          const Coefficient& decay, const AdamOptions& options) {
  const std::string last = std::to_string(parts.size() - 1);
  const Transformation whole = chain(std::move(parts));
  return Transformation(
      [whole](std::span<const Tensor> params) { return whole.init(params); },
      [whole](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        return whole.update(std::move(updates), state, params);
      },
      [=](std::vector<Tensor> updates, State& state, std::span<Tensor> params) {
        const Coefficient now = next_rate(rate, state.child(last));
        adam_apply(updates, state.child("0"), params, now, decay, options);
      });
}

}  // namespace

Transformation sgd(const LearningRate& rate, const SgdOptions& options) {
  if (options.momentum.number() == 0.0) {
    if (options.nesterov) fail("[sgd] expected a momentum above 0 for Nesterov's, got 0");
    return scale_by_learning_rate(rate);
  }
  return chain(trace(options.momentum, options.nesterov), scale_by_learning_rate(rate));
}

Transformation adam(const LearningRate& rate, const AdamOptions& options) {
  return adam_chain({scale_by_adam(options), scale_by_learning_rate(rate)}, rate, 0, options);
}

Transformation adamw(const LearningRate& rate, const Coefficient& weight_decay,
                     const AdamOptions& options) {
  return adam_chain(
      {scale_by_adam(options), add_decayed_weights(weight_decay), scale_by_learning_rate(rate)},
      rate, weight_decay, options);
}

Transformation lion(const LearningRate& rate, const LionOptions& options) {
  return chain(scale_by_lion(options.beta1, options.beta2),
               add_decayed_weights(options.weight_decay), scale_by_learning_rate(rate));
}

}  // namespace brrr::optim
