#include "brrr/nn/optim/optimizers.h"

#include "brrr/tensor/error.h"
#include "brrr/tensor/thread_context.h"

namespace brrr::optim {
namespace {

// A chain that ends with scale_by_learning_rate, whose apply is `step`: one pass over a parameter's
// bytes, from the state of the chain's first part and this step's rate.
template <class Step>
Transformation chain_in_one_pass(std::vector<Transformation> parts, const LearningRate& rate,
                                 Step step) {
  const std::string last = std::to_string(parts.size() - 1);
  const Transformation whole = chain(std::move(parts));
  return Transformation(
      [whole](std::span<const Tensor> params) { return whole.init(params); },
      [whole](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        return whole.update(std::move(updates), state, params);
      },
      [=](std::vector<Tensor> updates, State& state, std::span<Tensor> params) {
        const Coefficient now = next_rate(rate, state.child(last));
        step(updates, state.child("0"), params, now);
      });
}

using Updates = std::span<const Tensor>;
using Params = std::span<Tensor>;

Transformation adam_chain(std::vector<Transformation> parts, const LearningRate& rate,
                          const Coefficient& decay, const AdamOptions& options) {
  return chain_in_one_pass(
      std::move(parts), rate,
      [=](Updates updates, State& state, Params params, const Coefficient& now) {
        adam_apply(updates, state, params, now, decay, options);
      });
}

}  // namespace

Transformation sgd(const LearningRate& rate, const SgdOptions& options) {
  const CompositeScope scope("sgd");
  require_decay("sgd", "a momentum", options.momentum);
  if (options.momentum.number() == 0.0) {
    if (options.nesterov) fail("[sgd] expected a momentum above 0 for Nesterov's, got 0");
    return scale_by_learning_rate(rate);
  }
  return chain_in_one_pass(
      {trace(options.momentum, options.nesterov), scale_by_learning_rate(rate)}, rate,
      [options](Updates updates, State& state, Params params, const Coefficient& now) {
        trace_apply(updates, state, params, now, options.momentum, options.nesterov);
      });
}

Transformation adam(const LearningRate& rate, const AdamOptions& options) {
  const CompositeScope scope("adam");
  return adam_chain({scale_by_adam(options), scale_by_learning_rate(rate)}, rate, 0, options);
}

Transformation adamw(const LearningRate& rate, const Coefficient& weight_decay,
                     const AdamOptions& options) {
  const CompositeScope scope("adamw");
  return adam_chain(
      {scale_by_adam(options), add_decayed_weights(weight_decay), scale_by_learning_rate(rate)},
      rate, weight_decay, options);
}

Transformation lion(const LearningRate& rate, const LionOptions& options) {
  const CompositeScope scope("lion");
  return chain_in_one_pass(
      {scale_by_lion(options.beta1, options.beta2), add_decayed_weights(options.weight_decay),
       scale_by_learning_rate(rate)},
      rate, [options](Updates updates, State& state, Params params, const Coefficient& now) {
        lion_apply(updates, state, params, now, options.weight_decay, options.beta1, options.beta2);
      });
}

}  // namespace brrr::optim
