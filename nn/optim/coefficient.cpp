#include "brrr/nn/optim/coefficient.h"

#include <cmath>

#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::optim {

Coefficient::Coefficient(const Tensor& value) : tensor_(value) {
  if (!value.defined() || value.rank() != 0 || !is_floating(value.dtype())) {
    fail("[Coefficient] expected a number or a floating tensor of rank 0, got {}",
         value.defined() ? value.describe() : "an undefined tensor");
  }
}

Coefficient one_minus(const Coefficient& c) {
  if (c.number()) return 1.0 - *c.number();
  return 1.0 - *Operand(c).tensor;
}

void require_decay(const char* function, const char* name, const Coefficient& c) {
  if (c.number() && !(*c.number() >= 0 && *c.number() < 1)) {
    fail("[{}] expected {} in [0, 1), got {}", function, name, *c.number());
  }
}

void require_not_negative(const char* function, const char* name, const Coefficient& c) {
  if (c.number() && !(*c.number() >= 0 && std::isfinite(*c.number()))) {
    fail("[{}] expected {} to be finite and not negative, got {}", function, name, *c.number());
  }
}

}  // namespace brrr::optim
