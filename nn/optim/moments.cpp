#include "brrr/nn/optim/moments.h"

#include "brrr/ops/formulas.h"
#include "brrr/ops/functions.h"

namespace brrr::optim {
namespace {

DType accumulating(DType dtype, bool wide) { return wide && is_half(dtype) ? f32 : dtype; }

std::vector<Tensor> zeros_for(std::span<const Tensor> params, bool wide = true) {
  std::vector<Tensor> zero;
  for (const Tensor& param : params) {
    zero.push_back(zeros(param.shape(), {accumulating(param.dtype(), wide), param.device()}));
  }
  return zero;
}

// The average of ones of each parameter: a 0-d tensor.
std::vector<Tensor> ones_averages(std::span<const Tensor> params, bool wide = true) {
  std::vector<Tensor> zero;
  for (const Tensor& param : params) {
    zero.push_back(zeros({}, {accumulating(param.dtype(), wide), param.device()}));
  }
  return zero;
}

// The state of scale_by_adam. The averages of ones are updated like those of g and g², since 1²
// = 1.
struct AdamState {
  std::vector<Tensor>&mus, &nus, &mu_ones, &nu_ones;

  AdamState(State& state, std::span<const Tensor> params)
      : mus(state.list("mu", params)),
        nus(state.list("nu", params)),
        mu_ones(state.list("mu_ones")),
        nu_ones(state.list("nu_ones")) {}

  void count(std::size_t i, const Coefficient& weight1, const Coefficient& weight2) {
    average_ones_({mu_ones[i], nu_ones[i], weight1, weight2});
  }
};

}  // namespace

Transformation trace(const Coefficient& decay, bool nesterov) {
  require_decay("trace", "a decay", decay);
  return Transformation(
      [](std::span<const Tensor> params) { return State().add("trace", zeros_for(params)); },
      [=](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        std::vector<Tensor>& traces = state.list("trace", params);
        for (std::size_t i = 0; i < updates.size(); ++i) {
          const operands::momentum inputs{traces[i], updates[i], decay};
          momentum_(inputs);
          updates[i] = nesterov ? momentum(inputs)[0] : traces[i];
        }
        return updates;
      });
}

void trace_apply(std::span<const Tensor> updates, State& state, std::span<Tensor> params,
                 const Coefficient& rate, const Coefficient& decay, bool nesterov) {
  std::vector<Tensor>& traces = state.list("trace", params);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    if (nesterov) {
      nesterov_step_({params[i], traces[i], updates[i], decay, rate});
    } else {
      momentum_step_({params[i], traces[i], updates[i], decay, rate});
    }
  }
}

Transformation ema(const Coefficient& decay, bool debias) {
  require_decay("ema", "a decay", decay);
  return Transformation(
      [=](std::span<const Tensor> params) {
        State state;
        state.add("ema", zeros_for(params));
        if (debias) state.add("ema_ones", ones_averages(params));
        return state;
      },
      [=](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        std::vector<Tensor>& averages = state.list("ema", params);
        const Coefficient weight = one_minus(decay);
        for (std::size_t i = 0; i < updates.size(); ++i) {
          lerp_(averages[i], cast(updates[i], averages[i].dtype()), weight);
          updates[i] = averages[i];
          if (!debias) continue;
          Tensor& ones = state.list("ema_ones")[i];
          lerp_(ones, 1.0, weight);
          updates[i] = div(averages[i], ones);
        }
        return updates;
      });
}

Transformation scale_by_adam(const AdamOptions& options) {
  constexpr const char* kName = "scale_by_adam";
  require_decay(kName, "beta1", options.beta1);
  require_decay(kName, "beta2", options.beta2);
  require_not_negative(kName, "eps", options.eps);
  return Transformation(
      [wide = options.wide](std::span<const Tensor> params) {
        return State()
            .add("mu", zeros_for(params, wide))
            .add("nu", zeros_for(params, wide))
            .add("mu_ones", ones_averages(params, wide))
            .add("nu_ones", ones_averages(params, wide));
      },
      [options](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        AdamState s(state, params);
        const Coefficient weight1 = one_minus(options.beta1), weight2 = one_minus(options.beta2);
        for (std::size_t i = 0; i < updates.size(); ++i) {
          adam_averages_({s.mus[i], s.nus[i], updates[i], weight1, weight2});
          s.count(i, weight1, weight2);
          updates[i] =
              adam_direction({s.mus[i], s.nus[i], s.mu_ones[i], s.nu_ones[i], options.eps})[0];
        }
        return updates;
      });
}

void adam_apply(std::span<const Tensor> updates, State& state, std::span<Tensor> params,
                const Coefficient& rate, const Coefficient& decay, const AdamOptions& options) {
  AdamState s(state, params);
  const Coefficient weight1 = one_minus(options.beta1), weight2 = one_minus(options.beta2);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    s.count(i, weight1, weight2);
    adam_step_({.param = params[i],
                .mean = s.mus[i],
                .square = s.nus[i],
                .update = updates[i],
                .mean_of_ones = s.mu_ones[i],
                .square_of_ones = s.nu_ones[i],
                .rate = rate,
                .mean_weight = weight1,
                .square_weight = weight2,
                .eps = options.eps,
                .decay = decay});
  }
}

Transformation scale_by_lion(const Coefficient& beta1, const Coefficient& beta2) {
  require_decay("scale_by_lion", "beta1", beta1);
  require_decay("scale_by_lion", "beta2", beta2);
  return Transformation(
      [](std::span<const Tensor> params) { return State().add("mu", zeros_for(params)); },
      [=](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        std::vector<Tensor>& mus = state.list("mu", params);
        const Coefficient weight = one_minus(beta2);
        for (std::size_t i = 0; i < updates.size(); ++i) {
          const Tensor g = cast(updates[i], mus[i].dtype());
          updates[i] = lion_direction({mus[i], g, beta1})[0];
          lerp_(mus[i], g, weight);
        }
        return updates;
      });
}

void lion_apply(std::span<const Tensor> updates, State& state, std::span<Tensor> params,
                const Coefficient& rate, const Coefficient& decay, const Coefficient& beta1,
                const Coefficient& beta2) {
  std::vector<Tensor>& mus = state.list("mu", params);
  const Coefficient weight = one_minus(beta2);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    lion_step_({params[i], mus[i], updates[i], rate, beta1, weight, decay});
  }
}

}  // namespace brrr::optim
