// Hyperparameters as tensors of the state, so that a program can read them for a log and change
// them between steps with fill_, without making a new optimizer.
//
//   Transformation t = inject_hyperparams({{"rate", 1e-3}, {"decay", 0.1}}, [](const auto& h) {
//     return adamw(h["rate"], h["decay"]);
//   });
//   fill_(hyperparameter(state, "rate"), 1e-4);
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <brrr/nn/optim/coefficient.h>
#include <brrr/nn/optim/schedule.h>
#include <brrr/nn/optim/transformation.h>

namespace brrr::optim {

// The values that a transformation is made with, by name.
class Hyperparameters {
 public:
  explicit Hyperparameters(std::vector<std::pair<std::string, Coefficient>> values)
      : values_(std::move(values)) {}
  const Coefficient& operator[](std::string_view name) const;

 private:
  std::vector<std::pair<std::string, Coefficient>> values_;
};

using HyperparameterValues = std::vector<std::pair<std::string, std::variant<double, Schedule>>>;

// `make` is called in each step with 0-d f32 tensors of the state, and once at the start with the
// numbers, to validate them. Each step overwrites a scheduled hyperparameter with the schedule's
// value. State: hyperparams, inner, and count if there is a schedule.
Transformation inject_hyperparams(
    HyperparameterValues values, std::function<Transformation(const Hyperparameters& values)> make);

// The tensor of an injected hyperparameter, anywhere in the tree.
Tensor& hyperparameter(State& state, std::string_view name);

}  // namespace brrr::optim
