#include "brrr/nn/optim/hyperparameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::optim {

const Coefficient& Hyperparameters::operator[](std::string_view name) const {
  const auto found = std::ranges::find(
      values_, name, [](const auto& value) -> const std::string& { return value.first; });
  if (found == values_.end()) {
    std::vector<std::string> names;
    for (const auto& value : values_) names.push_back(value.first);
    fail("[inject_hyperparams] expected one of the names [{}], got \"{}\"", fmt::join(names, ", "),
         name);
  }
  return found->second;
}

namespace {

struct Injection {
  HyperparameterValues values;
  std::function<Transformation(const Hyperparameters&)> make;
  bool scheduled = false;

  State init(std::span<const Tensor> params) const {
    const Device device = params[0].device();
    State state, hyperparams;
    const Tensor count = step_counter(device);
    for (const auto& [name, value] : values) {
      const double* number = std::get_if<double>(&value);
      hyperparams.add(name, number ? full({}, *number, {.dtype = f32, .device = device})
                                   : std::get<Schedule>(value)(count));
    }
    if (scheduled) state.add("count", count);
    state.add("hyperparams", std::move(hyperparams));
    State inner = transformation(state).init(params);
    state.add("inner", std::move(inner));
    return state;
  }

  // The transformation with the state's hyperparameters.
  Transformation transformation(State& state) const {
    State& hyperparams = state.child("hyperparams");
    std::vector<std::pair<std::string, Coefficient>> now;
    for (const auto& value : values) {
      now.emplace_back(value.first, hyperparams.tensor(value.first));
    }
    return make(Hyperparameters(std::move(now)));
  }

  // Advances the schedules by a step.
  Transformation next_transformation(State& state) const {
    if (scheduled) {
      Tensor& count = state.tensor("count");
      for (const auto& [name, value] : values) {
        const Schedule* schedule = std::get_if<Schedule>(&value);
        if (schedule) copy_(state.child("hyperparams").tensor(name), (*schedule)(count));
      }
      add_(count, 1.0);
    }
    return transformation(state);
  }
};

}  // namespace

Transformation inject_hyperparams(HyperparameterValues values,
                                  std::function<Transformation(const Hyperparameters&)> make) {
  if (!make) fail("[inject_hyperparams] expected a function, got none");
  auto injection = std::make_shared<Injection>();
  std::vector<std::pair<std::string, Coefficient>> numbers;
  for (const auto& [name, value] : values) {
    const double* number = std::get_if<double>(&value);
    injection->scheduled |= number == nullptr;
    numbers.emplace_back(name, number ? Coefficient(*number) : Coefficient(zeros({})));
  }
  make(Hyperparameters(std::move(numbers)));
  injection->values = std::move(values);
  injection->make = std::move(make);
  return Transformation(
      [injection](std::span<const Tensor> params) { return injection->init(params); },
      [injection](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        return injection->next_transformation(state).update(std::move(updates),
                                                            state.child("inner"), params);
      },
      [injection](std::vector<Tensor> updates, State& state, std::span<Tensor> params) {
        injection->next_transformation(state).apply(std::move(updates), state.child("inner"),
                                                    params);
      });
}

Tensor& hyperparameter(State& state, std::string_view name) {
  Tensor* found = state.find("hyperparams", name);
  if (!found) fail("[hyperparameter] expected the name of an injected one, got \"{}\"", name);
  return *found;
}

}  // namespace brrr::optim
