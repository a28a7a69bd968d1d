#include "brrr/nn/optim/coefficient.h"

#include <cmath>

#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_context.h"

namespace brrr::optim {
namespace {

// The outermost composite, such as adam, which calls scale_by_adam; else the function itself.
const char* called_by_user(const char* function) {
  return thread_context.composite ? thread_context.composite : function;
}

}  // namespace

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
    fail("[{}] expected {} in [0, 1), got {}", called_by_user(function), name, *c.number());
  }
}

void require_not_negative(const char* function, const char* name, const Coefficient& c) {
  if (c.number() && !(*c.number() >= 0 && std::isfinite(*c.number()))) {
    fail("[{}] expected {} to be finite and not negative, got {}", called_by_user(function), name,
         *c.number());
  }
}

}  // namespace brrr::optim
