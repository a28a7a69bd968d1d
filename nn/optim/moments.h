// Moving averages of gradients, and the update directions computed from them. Averages for 16-bit
// parameters are f32 by default.
#pragma once

#include <brrr/nn/optim/coefficient.h>
#include <brrr/nn/optim/transformation.h>

namespace brrr::optim {

// Momentum: trace = updates + decay * trace. Returns the trace, or updates + decay * trace with
// Nesterov momentum. As optax, and as PyTorch's SGD without dampening. State: trace.
Transformation trace(const Coefficient& decay, bool nesterov = false);

// Momentum and the parameter update in one pass over memory, on a state of trace().
void trace_apply(std::span<const Tensor> updates, State& state, std::span<Tensor> params,
                 const Coefficient& rate, const Coefficient& decay, bool nesterov);

// ema = decay * ema + (1 - decay) * updates. Debiasing divides by the same average taken over ones,
// which is 1 - decay^t. State: ema, ema_ones.
Transformation ema(const Coefficient& decay, bool debias = true);

struct AdamOptions {
  Coefficient beta1 = 0.9;
  Coefficient beta2 = 0.999;
  Coefficient eps = 1e-8;
  bool wide = true;  // false: averages have the parameters' dtype, as in PyTorch
};

// Adam as Kingma and Ba, optax and PyTorch: m / (1 - beta1^t) over sqrt(v / (1 - beta2^t)) + eps,
// with eps outside the square root. The bias corrections are averages of ones, which round as m and
// v do. State: mu, nu, mu_ones, nu_ones.
//
// In a chain Adam takes 11 passes over the parameters' bytes: the averages (read m, v, g; write m,
// v), the direction (read m, v; write u), the parameter update (read u, p; write p). adam and adamw
// take 7.
Transformation scale_by_adam(const AdamOptions& options = {});

// The whole step in one kernel, on a state of scale_by_adam: reads g, m, v, p; writes m, v, p.
void adam_apply(std::span<const Tensor> updates, State& state, std::span<Tensor> params,
                const Coefficient& rate, const Coefficient& decay, const AdamOptions& options);

// sign((1 - beta1) * g + beta1 * m), then m = (1 - beta2) * g + beta2 * m. State: mu.
Transformation scale_by_lion(const Coefficient& beta1 = 0.9, const Coefficient& beta2 = 0.99);

// The direction, weight decay and the parameter update in one pass, on a state of scale_by_lion.
void lion_apply(std::span<const Tensor> updates, State& state, std::span<Tensor> params,
                const Coefficient& rate, const Coefficient& decay, const Coefficient& beta1,
                const Coefficient& beta2);

}  // namespace brrr::optim
