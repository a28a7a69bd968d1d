#include "brrr/nn/optim/scale.h"

#include <array>

#include "brrr/ops/functions.h"
#include "brrr/ops/register_op.h"

namespace brrr::optim {
namespace {

// How updates are multiplied by a factor, and how that product is added to the parameters.
struct Product {
  Op times;
  Op plus_times;
};
const Product kUp{Op::mul, Op::addcmul};

const Product& down() {
  static const Product product{
      register_op(PointwiseOp{.name = "optim_descent", .arity = 2, .expression = "-(a * b)"}),
      register_op(PointwiseOp{.name = "optim_descend", .arity = 3, .expression = "a - b * c"})};
  return product;
}

// `factor` makes this step's factor from the state.
template <class Factor>
Transformation scaled(const Product& product, Transformation::Init init, Factor factor) {
  return Transformation(
      std::move(init),
      [=](std::vector<Tensor> updates, State& state, std::span<const Tensor>) {
        const Coefficient by = factor(state);
        for (Tensor& update : updates) update = call_op(product.times, {update, by});
        return updates;
      },
      [=](std::vector<Tensor> updates, State& state, std::span<Tensor> params) {
        const Coefficient by = factor(state);
        for (std::size_t i = 0; i < params.size(); ++i) {
          pointwise(product.plus_times, std::array<Operand, 3>{params[i], updates[i], by},
                    &params[i]);
        }
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

Transformation scale(const Coefficient& factor) { return scaled(kUp, factor); }

Transformation scale_by_schedule(const Schedule& schedule) { return scaled(kUp, schedule); }

Transformation scale_by_learning_rate(const LearningRate& rate) {
  if (const Coefficient* fixed = std::get_if<Coefficient>(&rate)) {
    require_not_negative("scale_by_learning_rate", "a rate", *fixed);
    // The same bits, by ops that are built in.
    if (fixed->number()) return scale(-*fixed->number());
  }
  return std::visit([](const auto& value) { return scaled(down(), value); }, rate);
}

Transformation add_decayed_weights(const Coefficient& rate) {
  require_not_negative("add_decayed_weights", "a rate", rate);
  return Transformation(
      [rate](std::vector<Tensor> updates, State&, std::span<const Tensor> params) {
        for (std::size_t i = 0; i < updates.size(); ++i) {
          updates[i] = call_op(Op::addcmul, {updates[i], params[i], rate});
        }
        return updates;
      });
}

}  // namespace brrr::optim
