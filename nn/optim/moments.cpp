#include "brrr/nn/optim/moments.h"

#include <array>

#include "brrr/ops/adam_step.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/register_op.h"

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

// An average of ones for each parameter.
std::vector<Tensor> ones_averages(std::span<const Tensor> params, bool wide = true) {
  std::vector<Tensor> zero;
  for (const Tensor& param : params) {
    zero.push_back(zeros({}, {accumulating(param.dtype(), wide), param.device()}));
  }
  return zero;
}

// op(a, b, c), written to a.
void write(Op op, Tensor& a, const Operand& b, const Operand& c) {
  pointwise(op, std::array{Operand(a), b, c}, &a);
}

Tensor like(const Tensor& update, const Tensor& average) { return cast(update, average.dtype()); }

// The state of scale_by_adam. The square of 1 is 1, so both averages of ones move alike.
struct AdamState {
  std::vector<Tensor>&mus, &nus, &mu_ones, &nu_ones;

  AdamState(State& state, std::span<const Tensor> params)
      : mus(state.list("mu", params)),
        nus(state.list("nu", params)),
        mu_ones(state.list("mu_ones")),
        nu_ones(state.list("nu_ones")) {}

  void count(std::size_t i, const Coefficient& weight1, const Coefficient& weight2) {
    write(Op::lerp, mu_ones[i], 1.0, weight1);
    write(Op::lerp, nu_ones[i], 1.0, weight2);
  }
};

}  // namespace

Transformation trace(const Coefficient& decay, bool nesterov) {
  require_decay("trace", "a decay", decay);
  static const Op accumulate =
      register_op(PointwiseOp{.name = "optim_momentum", .arity = 3, .expression = "a * c + b"});
  return Transformation(
      [](std::span<const Tensor> params) { return State().add("trace", zeros_for(params)); },
      [=](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        std::vector<Tensor>& traces = state.list("trace", params);
        for (std::size_t i = 0; i < updates.size(); ++i) {
          const Tensor g = like(updates[i], traces[i]);
          write(accumulate, traces[i], g, decay);
          updates[i] = nesterov ? call_op(accumulate, {traces[i], g, decay}) : traces[i];
        }
        return updates;
      });
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
          write(Op::lerp, averages[i], like(updates[i], averages[i]), weight);
          updates[i] = averages[i];
          if (!debias) continue;
          Tensor& ones = state.list("ema_ones")[i];
          write(Op::lerp, ones, 1.0, weight);
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
  static const Op average_squares = register_op(PointwiseOp{
      .name = "optim_average_squares", .arity = 3, .expression = "a + c * (b * b - a)"});
  static const Op denominator = register_op(
      PointwiseOp{.name = "optim_adam_denominator", .arity = 3, .expression = "sqrt(a / b) + c"});
  static const Op ratio =
      register_op(PointwiseOp{.name = "optim_adam_ratio", .arity = 3, .expression = "b / (a * c)"});
  return Transformation(
      [wide = options.wide](std::span<const Tensor> params) {
        return State()
            .add("mu", zeros_for(params, wide))
            .add("nu", zeros_for(params, wide))
            .add("mu_ones", ones_averages(params, wide))
            .add("nu_ones", ones_averages(params, wide));
      },
      [options](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        AdamState of(state, params);
        const Coefficient weight1 = one_minus(options.beta1), weight2 = one_minus(options.beta2);
        for (std::size_t i = 0; i < updates.size(); ++i) {
          const Tensor g = like(updates[i], of.mus[i]);
          write(Op::lerp, of.mus[i], g, weight1);
          write(average_squares, of.nus[i], g, weight2);
          of.count(i, weight1, weight2);
          updates[i] = call_op(denominator, {of.nus[i], of.nu_ones[i], options.eps});
          write(ratio, updates[i], of.mus[i], of.mu_ones[i]);
        }
        return updates;
      });
}

void adam_apply(std::span<const Tensor> updates, State& state, std::span<Tensor> params,
                const Coefficient& rate, const Coefficient& decay, const AdamOptions& options) {
  AdamState of(state, params);
  const Coefficient weight1 = one_minus(options.beta1), weight2 = one_minus(options.beta2);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    of.count(i, weight1, weight2);
    adam_step_({params[i], of.mus[i], of.nus[i], updates[i], of.mu_ones[i], of.nu_ones[i]},
               {rate, weight1, weight2, options.eps, decay});
  }
}

Transformation scale_by_lion(const Coefficient& beta1, const Coefficient& beta2) {
  require_decay("scale_by_lion", "beta1", beta1);
  require_decay("scale_by_lion", "beta2", beta2);
  static const Op direction = register_op(PointwiseOp{
      .name = "optim_lion_direction", .arity = 3, .expression = "sign(b + c * (a - b))"});
  return Transformation(
      [](std::span<const Tensor> params) { return State().add("mu", zeros_for(params)); },
      [=](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        std::vector<Tensor>& mus = state.list("mu", params);
        const Coefficient weight = one_minus(beta2);
        for (std::size_t i = 0; i < updates.size(); ++i) {
          const Tensor g = like(updates[i], mus[i]);
          updates[i] = call_op(direction, {mus[i], g, beta1});
          write(Op::lerp, mus[i], g, weight);
        }
        return updates;
      });
}

}  // namespace brrr::optim
