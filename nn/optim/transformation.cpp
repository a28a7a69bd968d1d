#include "brrr/nn/optim/transformation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "brrr/autograd/autograd.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::optim {
namespace {

void require_same_shapes(const char* where, std::span<const Tensor> updates,
                         std::span<const Tensor> params) {
  if (updates.size() != params.size()) {
    fail("[{}] expected an update for each of {} parameters, got {}", where, params.size(),
         updates.size());
  }
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (!params[i].defined()) {
      problems.push_back(fmt::format("no parameter at {}", i));
    } else if (!updates[i].defined()) {
      problems.push_back(fmt::format("none for parameter {} of {}", i, params[i].describe()));
    } else if (!std::ranges::equal(updates[i].shape(), params[i].shape()) ||
               updates[i].device() != params[i].device()) {
      problems.push_back(
          fmt::format("{} for parameter {} of {}", updates[i].describe(), i, params[i].describe()));
    }
  }
  if (!problems.empty()) {
    fail("[{}] expected updates of the parameters' shapes, got {}", where,
         fmt::join(problems, "; "));
  }
}

}  // namespace

Transformation::Transformation(Update update) : Transformation({}, std::move(update)) {}
Transformation::Transformation(Init init, Update update, Apply apply)
    : init_(std::move(init)),
      update_(std::move(update)),
      apply_(std::move(apply)),
      made_in_trace_(tracing()) {
  if (!update_) fail("[Transformation] expected an update, got none");
}

State Transformation::init(std::span<const Tensor> params) const {
  if (params.empty()) fail("[Transformation::init] expected at least one parameter, got none");
  for (const Tensor& param : params) {
    if (!param.defined() || !is_floating(param.dtype())) {
      fail("[Transformation::init] expected floating parameters, got {}",
           param.defined() ? param.describe() : "an undefined tensor");
    }
  }
  const NoGrad constant;
  return init_ ? init_(params) : State();
}

std::vector<Tensor> Transformation::update(std::vector<Tensor> updates, State& state,
                                           std::span<const Tensor> params) const {
  require_same_shapes("Transformation::update", updates, params);
  const NoGrad constant;
  std::optional<IntendedConstants> intended;
  if (!made_in_trace_) intended.emplace();
  return update_(std::move(updates), state, params);
}

void Transformation::apply(std::vector<Tensor> updates, State& state,
                           std::span<Tensor> params) const {
  require_same_shapes("Transformation::apply", updates, params);
  const NoGrad constant;
  std::optional<IntendedConstants> intended;
  if (!made_in_trace_) intended.emplace();
  if (apply_) {
    apply_(std::move(updates), state, params);
  } else {
    apply_updates(params, update_(std::move(updates), state, params));
  }
}

Transformation chain(std::vector<Transformation> transformations) {
  if (transformations.empty()) return identity();
  const auto parts =
      std::make_shared<const std::vector<Transformation>>(std::move(transformations));
  const auto run = [parts](std::size_t count, std::vector<Tensor> updates, State& state,
                           std::span<const Tensor> params) {
    for (std::size_t i = 0; i < count; ++i) {
      updates = (*parts)[i].update(std::move(updates), state.child(std::to_string(i)), params);
    }
    return updates;
  };
  return Transformation(
      [parts](std::span<const Tensor> params) {
        State state;
        for (std::size_t i = 0; i < parts->size(); ++i) {
          state.add(std::to_string(i), (*parts)[i].init(params));
        }
        return state;
      },
      [parts, run](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        return run(parts->size(), std::move(updates), state, params);
      },
      [parts, run](std::vector<Tensor> updates, State& state, std::span<Tensor> params) {
        const std::size_t last = parts->size() - 1;
        updates = run(last, std::move(updates), state, params);
        (*parts)[last].apply(std::move(updates), state.child(std::to_string(last)), params);
      });
}

Transformation identity() {
  return Transformation(
      [](std::vector<Tensor> updates, State&, std::span<const Tensor>) { return updates; });
}

void apply_updates(std::span<Tensor> params, std::span<const Tensor> updates) {
  require_same_shapes("apply_updates", updates, params);
  const NoGrad constant;
  for (std::size_t i = 0; i < params.size(); ++i) add_(params[i], updates[i]);
}

}  // namespace brrr::optim
