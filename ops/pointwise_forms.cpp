// Functions of PyTorch that are special cases of pointwise rows: clamp_min, addcmul, masked_fill,
// ...

#include <array>
#include <limits>

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/pointwise.h"
#include "brrr/ops/scalar_attr.h"
#include "brrr/tensor/fail.h"

namespace brrr {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_floating(const Operand& x) {
  return x.tensor ? brrr::is_floating(x.tensor->dtype())
                  : x.scalar.category() == Category::floating;
}

// A one-sided clamp: `clamp` with an infinite other bound, so that it has clamp's gradient at the
// bound. Integers have no infinity, and no gradient: for them the op is `integral`.
Tensor bounded(const char* name, Op integral, const Tensor& x, const Operand& low,
               const Operand& high) {
  const CompositeScope scope(name);
  const Operand& bound = integral == Op::maximum ? low : high;
  require_defined(name, x);
  if (bound.tensor && !bound.tensor->defined()) undefined_operand(name, 1);
  return is_floating(x) || is_floating(bound)
             ? clamp(x, low, high)
             : pointwise(integral, std::array<Operand, 2>{x, bound}, nullptr);
}

// (value * b) * c or (value * b) / c, added to a. The product with the number has the type that the
// row computes in: f32 for halves, since value * b alone may be out of f16's range.
struct Scaled {
  Op op;
  DType dtype;  // of the result
  Tensor a, b, c;

  Scaled(Op row, const Tensor& a_, const Tensor& b_, const Tensor& c_, Scalar value) : op(row) {
    const char* name = op_info(op).name;
    require_defined(name, a_, b_, c_);
    dtype = compute_dtype(op_info(op), std::array<Operand, 4>{a_, b_, c_, value});
    const DType wide = is_half(dtype) ? f32 : dtype;
    a = cast(a_, wide);
    b = mul(cast(b_, wide), value);
    c = cast(c_, wide);
  }
  Tensor result() const {
    return cast(pointwise(op, std::array<Operand, 3>{a, b, c}, nullptr), dtype);
  }
  Tensor& write_to(Tensor& to) const {
    if (is_half(dtype) && to.dtype() == dtype) return copy_(to, result());
    pointwise(op, std::array<Operand, 3>{to, b, c}, &to);
    return to;
  }
};

void require_value(const char* op, const Tensor& x, Scalar value) {
  if (value.category() > category_of(x.dtype()))
    fail("[{}] expected a value of the kind of {}, got {}", op, x.describe(), to_string(value));
  require_representable(op, x.dtype(), value);
}

}  // namespace

Tensor clamp_min(const Tensor& x, const Operand& low) {
  return bounded("clamp_min", Op::maximum, x, low, kInfinity);
}
Tensor clamp_max(const Tensor& x, const Operand& high) {
  return bounded("clamp_max", Op::minimum, x, -kInfinity, high);
}
Tensor& clamp_min_(Tensor& x, Scalar low) {
  const Composite scope("clamp_min_", x);
  return is_floating(x) ? clamp_(x, low, kInfinity) : maximum_(x, low);
}
Tensor& clamp_max_(Tensor& x, Scalar high) {
  const Composite scope("clamp_max_", x);
  return is_floating(x) ? clamp_(x, -kInfinity, high) : minimum_(x, high);
}

#define BRRR_SCALED(name)                                                        \
  Tensor name(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value) { \
    const CompositeScope scope(#name);                                           \
    return Scaled(Op::name, a, b, c, value).result();                            \
  }                                                                              \
  Tensor& name##_(Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {   \
    const CompositeScope scope(#name "_");                                       \
    return Scaled(Op::name, a, b, c, value).write_to(a);                         \
  }
BRRR_SCALED(addcmul)
BRRR_SCALED(addcdiv)
#undef BRRR_SCALED

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  require_defined("masked_fill", x);
  require_value("masked_fill", x, value);
  const CompositeScope scope("masked_fill");
  return where(mask, value, x);
}

Tensor& masked_fill_(Tensor& x, const Tensor& mask, Scalar value) {
  require_defined("masked_fill_", x);
  require_value("masked_fill_", x, value);
  const CompositeScope scope("masked_fill_");
  return copy_(x, where(mask, value, x));
}

}  // namespace brrr
