#include "brrr/nn/optim/clip.h"

#include <cmath>

#include "brrr/ops/formulas.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::optim {
namespace {

void require_positive(const char* function, double most) {
  if (!(most > 0 && std::isfinite(most)))
    fail("[{}] expected a finite limit above 0, got {}", function, most);
}

}  // namespace

Transformation clip(double most) {
  require_positive("clip", most);
  return Transformation([most](std::vector<Tensor> updates, State&, std::span<const Tensor>) {
    for (Tensor& update : updates) update = clamp(update, -most, most);
    return updates;
  });
}

Transformation clip_by_global_norm(double most) {
  require_positive("clip_by_global_norm", most);
  return Transformation([most](std::vector<Tensor> updates, State&, std::span<const Tensor>) {
    const Tensor factor = clip_factor({global_norm(updates), most})[0];
    for (Tensor& update : updates) update = mul(update, factor);
    return updates;
  });
}

Tensor global_norm(std::span<const Tensor> tensors) {
  if (tensors.empty()) fail("[global_norm] expected at least one tensor, got none");
  Tensor total;
  for (const Tensor& tensor : tensors) {
    // A sum of squares overflows f16 early.
    const Tensor part = norm(is_half(tensor.dtype()) ? cast(tensor, f32) : tensor);
    if (!total.defined()) {
      total = part;
    } else {
      const Tensor wide = cast(total, promote(total.dtype(), part.dtype()));
      total = joined_norm({wide, part})[0];
    }
  }
  return total;
}

}  // namespace brrr::optim
