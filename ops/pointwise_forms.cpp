// Forms of pointwise rows that PyTorch's users know by names of their own.
#include <fmt/format.h>

#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/numbers.h"
#include "brrr/tensor/error.h"

namespace brrr {

Tensor clamp_min(const Tensor& x, const Tensor& low) {
  const CompositeScope scope("clamp_min");
  return maximum(x, low);
}
Tensor clamp_min(const Tensor& x, Scalar low) {
  const CompositeScope scope("clamp_min");
  return maximum(x, low);
}
Tensor& clamp_min_(Tensor& x, Scalar low) {
  const CompositeScope scope("clamp_min_");
  return maximum_(x, low);
}
Tensor clamp_max(const Tensor& x, const Tensor& high) {
  const CompositeScope scope("clamp_max");
  return minimum(x, high);
}
Tensor clamp_max(const Tensor& x, Scalar high) {
  const CompositeScope scope("clamp_max");
  return minimum(x, high);
}
Tensor& clamp_max_(Tensor& x, Scalar high) {
  const CompositeScope scope("clamp_max_");
  return minimum_(x, high);
}

// The number joins the second operand, as in PyTorch: (value * b) * c and (value * b) / c.
Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {
  const CompositeScope scope("addcmul");
  return addcmul(a, mul(b, value), c);
}
Tensor& addcmul_(Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {
  const CompositeScope scope("addcmul_");
  return addcmul_(a, mul(b, value), c);
}
Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {
  const CompositeScope scope("addcdiv");
  return addcdiv(a, mul(b, value), c);
}
Tensor& addcdiv_(Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {
  const CompositeScope scope("addcdiv_");
  return addcdiv_(a, mul(b, value), c);
}

namespace {

void require_holds(const char* op, const Tensor& x, Scalar value) {
  if (value.category() > category_of(x.dtype()))
    fail(fmt::format("[{}] expected a value of the kind of {}, got {}", op, x.describe(),
                     to_string(value)));
}

}  // namespace

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  require_defined("masked_fill", x);
  require_holds("masked_fill", x, value);
  const CompositeScope scope("masked_fill");
  return where(mask, value, x);
}

Tensor& masked_fill_(Tensor& x, const Tensor& mask, Scalar value) {
  require_defined("masked_fill_", x);
  require_holds("masked_fill_", x, value);
  const CompositeScope scope("masked_fill_");
  return copy_(x, where(mask, value, x));
}

}  // namespace brrr
