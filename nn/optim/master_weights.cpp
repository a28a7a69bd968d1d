#include "brrr/nn/optim/master_weights.h"

#include "brrr/ops/functions.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::optim {
namespace {

// The masters, and the parameters that have none.
std::vector<Tensor> masters_of(State& state, std::span<const Tensor> params) {
  std::vector<Tensor> all = state.list("masters", params);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].defined()) all[i] = params[i];
  }
  return all;
}

std::vector<Tensor> cast_for(std::vector<Tensor> updates, std::span<const Tensor> params) {
  for (std::size_t i = 0; i < updates.size(); ++i) {
    updates[i] = cast(updates[i], params[i].dtype());
  }
  return updates;
}

}  // namespace

Transformation master_weights(const Transformation& inner) {
  return Transformation(
      [inner](std::span<const Tensor> params) {
        std::vector<Tensor> masters(params.size());
        for (std::size_t i = 0; i < params.size(); ++i) {
          if (is_half(params[i].dtype())) masters[i] = cast(params[i], f32);
        }
        State state = State().add("masters", std::move(masters));
        State inner_state = inner.init(masters_of(state, params));
        return state.add("inner", std::move(inner_state));
      },
      [inner](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        std::vector<Tensor> all = masters_of(state, params);
        updates = inner.update(cast_for(std::move(updates), all), state.child("inner"), all);
        for (std::size_t i = 0; i < all.size(); ++i) {
          if (TensorImpl::of(all[i]) == TensorImpl::of(params[i])) continue;
          updates[i] = sub(add_(all[i], updates[i]), params[i]);
        }
        return updates;
      },
      [inner](std::vector<Tensor> updates, State& state, std::span<Tensor> params) {
        std::vector<Tensor> all = masters_of(state, params);
        inner.apply(cast_for(std::move(updates), all), state.child("inner"), all);
        for (std::size_t i = 0; i < all.size(); ++i) {
          if (TensorImpl::of(all[i]) != TensorImpl::of(params[i])) copy_(params[i], all[i]);
        }
      });
}

}  // namespace brrr::optim
