// A transformation at work on the parameters of a model.
//
//   Optimizer optimizer(model, chain(clip_by_global_norm(1.0), adam(1e-3)));
//   backward(loss);
//   optimizer.step();
//   optimizer.zero_grad();
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/nn/optim/hyperparameters.h>
#include <brrr/nn/optim/transformation.h>

namespace brrr::nn {
class Module;
class Parameters;
}  // namespace brrr::nn

namespace brrr::optim {

// What nn::Parameters is: parallel lists of values and gradients, one tensor a dtype and device.
template <class P>
concept ParameterGroups = requires(P& parameters) {
  parameters.values().begin();
  parameters.gradients().begin();
  parameters.zero_grad();
};

class Optimizer {
 public:
  using Collect = std::function<std::vector<Tensor>()>;

  // Packs the model's parameters (nn/parameters.h) and keeps them packed while it lives; neither
  // needs the other to outlive it. A model that is packed already is refused: give the optimizer
  // those nn::Parameters.
  Optimizer(nn::Module& model, Transformation transformation);
  // Tensors with gradients of their own. Each costs launches of its own: pack those of a model.
  Optimizer(std::vector<Tensor> leaves, Transformation transformation);
  // `parameters` is referred to: it must outlive the optimizer.
  template <ParameterGroups P>
  Optimizer(P& parameters, Transformation transformation)
      : Optimizer(
            list_of(parameters.values()), std::move(transformation),
            [&parameters] { return list_of(parameters.gradients()); },
            [&parameters] { parameters.zero_grad(); }) {}
  Optimizer(std::vector<Tensor> values, Transformation transformation, Collect gradients,
            std::function<void()> zero_grad);

  // Updates the parameters, in place. A parameter without a gradient has one of zeros, unless all
  // are without: then it throws.
  void step();
  void zero_grad() { zero_grad_(); }

  State& state() { return state_; }
  Tensor& hyperparameter(std::string_view name) { return optim::hyperparameter(state_, name); }
  NamedTensors state_dict() const { return state_.named(); }
  void save(const std::string& path) const { optim::save(state_, path); }
  void load(const std::string& path) { optim::load(state_, path); }

 private:
  Optimizer(std::shared_ptr<nn::Parameters> packed, Transformation transformation);

  template <class Tensors>
  static std::vector<Tensor> list_of(const Tensors& tensors) {
    return {tensors.begin(), tensors.end()};
  }

  std::vector<Tensor> values_;
  Transformation transformation_;
  Collect gradients_;
  std::function<void()> zero_grad_;
  State state_;
};

}  // namespace brrr::optim
