// Comparisons of whole tensors.

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr {

bool equal(const Tensor& a, const Tensor& b) {
  const Composite scope("equal", a, b);
  return std::ranges::equal(a.shape(), b.shape()) && item<bool>(all(eq(a, b)));
}

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  const Composite scope("isclose", a, b);
  if (!(rtol >= 0 && atol >= 0)) {
    fail("[isclose] expected tolerances of at least 0, got {} and {}", rtol, atol);
  }
  const ExcludeKeys constant(bit(Key::autograd));
  const DType common = promote(a.dtype(), b.dtype());
  const DType wide = is_half(common) ? f32 : is_floating(common) ? common : f64;
  const Tensor x = cast(a, wide), y = cast(b, wide), error = abs(x - y);
  Tensor close = (x == y) | (isfinite(error) & (error <= abs(y) * rtol + atol));
  if (equal_nan) close |= isnan(x) & isnan(y);
  return close;
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  const CompositeScope scope("allclose");
  return item<bool>(all(isclose(a, b, rtol, atol, equal_nan)));
}

}  // namespace brrr
