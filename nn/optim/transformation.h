// Gradient transformations, as optax has them: small steps from gradients to updates that are put
// together to optimizers.
//
//   Transformation t = chain(clip_by_global_norm(1.0), scale_by_adam(), scale(-1e-3));
//   State state = t.init(params);
//   apply_updates(params, t.update(gradients, state, params));   // or t.apply(gradients, state,
//   params)
//
// Nothing in a step reads a value to the host: counters and whatever depends on data are tensors
// where the parameters are. Lists have a tensor for each parameter; few large ones (flat buffers)
// mean few launches.
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
  // Returns the new updates, which are good until the next step. Writes to its state only, and not
  // to the updates that it was given.
  using Update = std::function<std::vector<Tensor>(std::vector<Tensor> updates, State& state,
                                                   std::span<const Tensor> params)>;
  using Apply =
      std::function<void(std::vector<Tensor> updates, State& state, std::span<Tensor> params)>;

  // Numbers that its functions use are constants of the program: a compiled step does not report
  // them as frozen, unless the transformation is made in the step itself.
  Transformation(Update update);  // without a state
  // `apply` is for a transformation that adds its updates to the parameters in fewer launches than
  // update and apply_updates, to the same end.
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

// One after the other. The state has a child "0", "1", ... for each.
Transformation chain(std::vector<Transformation> transformations);
template <class... More>
Transformation chain(Transformation first, More... more) {
  return chain(std::vector<Transformation>{std::move(first), std::move(more)...});
}

Transformation identity();

// params += updates, in place; parameters of 16 bits are added to in f32 and rounded once.
void apply_updates(std::span<Tensor> params, std::span<const Tensor> updates);

}  // namespace brrr::optim
