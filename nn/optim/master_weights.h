// Training of f16 and bf16 parameters whose steps are too small for them: f32 masters take the
// updates, and the parameters follow, rounded.
#pragma once

#include <brrr/nn/optim/transformation.h>

namespace brrr::optim {

// `inner` sees updates and parameters in f32; parameters of other types pass through. Whoever
// writes to the parameters by other ways starts over with init. State: masters, inner.
//
// `apply` makes each parameter its master, rounded. `update`, for use inside a chain, gives the
// difference in f32, which rounds once more.
Transformation master_weights(const Transformation& inner);

}  // namespace brrr::optim
