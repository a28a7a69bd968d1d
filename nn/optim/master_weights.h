// Mixed-precision training: f32 master weights take the updates, which may be below the resolution
// of f16 and bf16 parameters; the parameters are the masters, rounded.
#pragma once

#include <brrr/nn/optim/transformation.h>

namespace brrr::optim {

// `inner` gets updates and parameters in f32; parameters of other dtypes pass through. After
// another write to the parameters call init again. State: masters, inner.
//
// `apply` sets each parameter to its rounded master. `update`, for use inside a chain, returns the
// difference in f32; adding it rounds a second time.
Transformation master_weights(const Transformation& inner);

}  // namespace brrr::optim
