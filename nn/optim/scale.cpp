#include "brrr/nn/optim/scale.h"

#include "brrr/ops/formulas.h"
#include "brrr/ops/functions.h"

namespace brrr::optim {
namespace {

// Computes update * factor (or its negative), alone or added to a parameter.
struct Product {
  Tensor (*times)(const Tensor& update, const Coefficient& factor);
  void (*add_times)(Tensor& param, const Tensor& update, const Coefficient& factor);
};

constexpr Product kPositive{[](const Tensor& update, const Coefficient& factor) {
                              return factor.number() ? mul(update, *factor.number())
                                                     : mul(update, *Operand(factor).tensor);
                            },
                            [](Tensor& param, const Tensor& update, const Coefficient& factor) {
                              addcmul_(param, update, factor);
                            }};
constexpr Product kNegative{[](const Tensor& update, const Coefficient& rate) {
                              return descent({update, rate})[0];
                            },
                            [](Tensor& param, const Tensor& update, const Coefficient& rate) {
                              descend_({param, update, rate});
                            }};

// `factor` returns this step's factor; it may update the state.
template <class Factor>
Transformation scaled(const Product& product, Transformation::Init init, Factor factor) {
  return Transformation(
      std::move(init),
      [=](std::vector<Tensor> updates, State& state, std::span<const Tensor>) {
        const Coefficient by = factor(state);
        for (Tensor& update : updates) update = product.times(update, by);
        return updates;
      },
      [=](std::vector<Tensor> updates, State& state, std::span<Tensor> params) {
        const Coefficient by = factor(state);
        for (std::size_t i = 0; i < params.size(); ++i)
          product.add_times(params[i], updates[i], by);
      });
}

Transformation scaled(const Product& product, const Coefficient& factor) {
  return scaled(product, {}, [factor](State&) { return factor; });
}

Transformation scaled(const Product& product, const Schedule& schedule) {
  return scaled(
      product,
      [](std::span<const Tensor> params) {
        return State().add("count", step_counter(params[0].device()));
      },
      [schedule](State& state) { return next_rate(schedule, state); });
}

}  // namespace

Coefficient next_rate(const LearningRate& rate, State& state) {
  if (const Coefficient* fixed = std::get_if<Coefficient>(&rate)) return *fixed;
  Tensor& count = state.tensor("count");
  Coefficient value = std::get<Schedule>(rate)(count);
  add_(count, 1.0);
  return value;
}

Transformation scale(const Coefficient& factor) { return scaled(kPositive, factor); }

Transformation scale_by_schedule(const Schedule& schedule) { return scaled(kPositive, schedule); }

Transformation scale_by_learning_rate(const LearningRate& rate) {
  if (const Coefficient* fixed = std::get_if<Coefficient>(&rate)) {
    require_not_negative("scale_by_learning_rate", "a learning rate", *fixed);
    if (fixed->number()) return scale(-*fixed->number());  // the same bits
  }
  return std::visit([](const auto& value) { return scaled(kNegative, value); }, rate);
}

Transformation add_decayed_weights(const Coefficient& rate) {
  require_not_negative("add_decayed_weights", "a weight decay", rate);
  return Transformation(
      [rate](std::vector<Tensor> updates, State&, std::span<const Tensor> params) {
        for (std::size_t i = 0; i < updates.size(); ++i)
          updates[i] = addcmul(updates[i], params[i], rate);
        return updates;
      });
}

}  // namespace brrr::optim
