// Applies a gradient transformation to the parameters of a model, and owns its state.
//
//   Optimizer optimizer(model, chain(clip_by_global_norm(1.0), adam(1e-3)));
//   backward(loss);
//   optimizer.step();
//   optimizer.zero_grad();
#pragma once

#include <functional>
#include <memory>
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

// A type with parallel lists of values and gradients, such as nn::Parameters.
template <class P>
concept ParameterGroups = requires(P& parameters) {
  parameters.values().begin();
  parameters.gradients().begin();
  parameters.zero_grad();
};

class Optimizer {
 public:
  using Collect = std::function<std::vector<Tensor>()>;

  // Packs the model's parameters (nn/parameters.h) for the lifetime of the optimizer; the two may
  // be destroyed in any order. A model that is already packed is refused: pass its nn::Parameters.
  Optimizer(nn::Module& model, Transformation transformation);
  // Leaves that are not packed: a step launches its kernels for each of them.
  Optimizer(std::vector<Tensor> leaves, Transformation transformation);
  // `parameters` must outlive the optimizer.
  template <ParameterGroups P>
  Optimizer(P& parameters, Transformation transformation)
      : Optimizer(
            list_of(parameters.values()), std::move(transformation),
            [&parameters] { return list_of(parameters.gradients()); },
            [&parameters] { parameters.zero_grad(); }) {}
  Optimizer(std::vector<Tensor> values, Transformation transformation, Collect gradients,
            std::function<void()> zero_grad);

  // Updates the parameters in place. A missing gradient counts as zeros; throws if all are missing.
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
