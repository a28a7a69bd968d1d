// Gradient transformations, as in optax: composable functions from gradients to updates. An
// optimizer is a chain of them.
//
//   Transformation t = chain(clip_by_global_norm(1.0), scale_by_adam(), scale(-1e-3));
//   State state = t.init(params);
//   t.apply(gradients, state, params);  // or: apply_updates(params, t.update(gradients, state,
//                                       // params))
//
// No step reads a value to the host: counters and everything that depends on data are tensors on
// the parameters' device. Lists have one tensor per parameter, so packed parameters take few
// launches.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <brrr/nn/optim/state.h>
#include <brrr/tensor/tensor.h>

namespace brrr::optim {

class Transformation {
 public:
  using Init = std::function<State(std::span<const Tensor> params)>;
  // Returns the new updates, valid until the next step. Writes to the state only, not to the
  // updates that it gets.
  using Update = std::function<std::vector<Tensor>(std::vector<Tensor> updates, State& state,
                                                   std::span<const Tensor> params)>;
  using Apply =
      std::function<void(std::vector<Tensor> updates, State& state, std::span<Tensor> params)>;

  // Numbers in the functions are constants of the program: a compiled step does not report them as
  // frozen, unless the transformation is made in the step itself.
  Transformation(Update update);  // without state
  // `apply` is an optional implementation of update and apply_updates in fewer launches.
  Transformation(Init init, Update update, Apply apply = {});

  State init(std::span<const Tensor> params) const;
  std::vector<Tensor> update(std::vector<Tensor> updates, State& state,
                             std::span<const Tensor> params) const;
  // Updates the parameters, in place.
  void apply(std::vector<Tensor> updates, State& state, std::span<Tensor> params) const;

 private:
  Init init_;
  Update update_;
  Apply apply_;
  bool made_in_trace_;
};

// Applies transformations in order. The state has a child "0", "1", ... for each.
Transformation chain(std::vector<Transformation> transformations);
template <class... More>
Transformation chain(Transformation first, More... more) {
  return chain(std::vector<Transformation>{std::move(first), std::move(more)...});
}

Transformation identity();

// params += updates, in place; 16-bit parameters are added in f32 and rounded once.
void apply_updates(std::span<Tensor> params, std::span<const Tensor> updates);

}  // namespace brrr::optim
