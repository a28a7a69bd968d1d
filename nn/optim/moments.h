// Running averages of gradients, and the directions made of them. Averages of parameters of 16 bits
// are f32, unless said otherwise.
#pragma once

#include <brrr/nn/optim/coefficient.h>
#include <brrr/nn/optim/transformation.h>

namespace brrr::optim {

// Momentum: trace = updates + decay * trace; gives the trace, or with Nesterov's look ahead
// updates + decay * trace. As optax and PyTorch's SGD without dampening. State: trace.
Transformation trace(const Coefficient& decay, bool nesterov = false);

// With the descent, one pass over memory, on a state that trace made.
void trace_apply(std::span<const Tensor> updates, State& state, std::span<Tensor> params,
                 const Coefficient& rate, const Coefficient& decay, bool nesterov);

// ema = decay * ema + (1 - decay) * updates; debiased, it is divided by what the same average of
// ones would be, 1 - decay^t. State: ema, ema_ones.
Transformation ema(const Coefficient& decay, bool debias = true);

struct AdamOptions {
  Coefficient beta1 = 0.9;
  Coefficient beta2 = 0.999;
  Coefficient eps = 1e-8;
  bool wide = true;  // else averages have the parameters' own type, as PyTorch's
};

// Adam as Kingma and Ba, optax and PyTorch: m / (1 - beta1^t) over sqrt(v / (1 - beta2^t)) + eps,
// with eps outside the root. The corrections are kept as averages of ones, which round as m and v
// do. State: mu, nu, mu_ones, nu_ones.
//
// In a chain it makes 11 passes over the parameters' bytes, with what adds the updates: the
// averages (reads m, v, g, writes m, v), the direction (reads m, v, writes u), the descent (reads
// u, p, writes p). adam and adamw take 7.
Transformation scale_by_adam(const AdamOptions& options = {});

// The whole step at once, on a state that scale_by_adam made: reads g, m, v, p and writes m, v, p.
void adam_apply(std::span<const Tensor> updates, State& state, std::span<Tensor> params,
                const Coefficient& rate, const Coefficient& decay, const AdamOptions& options);

// sign((1 - beta1) * g + beta1 * m), then m = (1 - beta2) * g + beta2 * m. State: mu.
Transformation scale_by_lion(const Coefficient& beta1 = 0.9, const Coefficient& beta2 = 0.99);

// With weight decay and the descent, one pass over memory, on a state that scale_by_lion made.
void lion_apply(std::span<const Tensor> updates, State& state, std::span<Tensor> params,
                const Coefficient& rate, const Coefficient& decay, const Coefficient& beta1,
                const Coefficient& beta2);

}  // namespace brrr::optim
