// The functions of the reduction rows, and the reductions written over them.

#include <algorithm>
#include <cmath>

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/shapes.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

std::int64_t all_dims(const Tensor& x) { return (std::int64_t{1} << x.rank()) - 1; }

// No dimension named means all of them, as in PyTorch.
std::int64_t mask_of(const char* op, const Tensor& x, const Dims& dims) {
  if (dims.empty()) return all_dims(x);
  std::int64_t mask = 0;
  for (std::int64_t d : dims) {
    const std::int64_t one = std::int64_t{1} << wrap_dim(op, d, x.rank());
    if (mask & one) fail("[{}] expected each dimension once, got {}", op, to_string(dims));
    mask |= one;
  }
  return mask & all_dims(x);  // a 0-d tensor's dimension 0 is not one that the row knows
}

Tensor reduce(Op op, const Tensor& x, std::int64_t mask, bool keepdim) {
  const OpInfo& info = op_info(op);
  const Tensor operand =
      info.rule == DTypeRule::float_like && !is_floating(x.dtype()) ? cast(x, f32) : x;
  if (!contains(info.types, operand.dtype())) {
    fail("[{}] expected a type that it is defined for, got {}", info.name, x.describe());
  }
  return dispatch_op(op, result_dtype(info.rule, operand.dtype()), {mask, keepdim}, operand);
}

Tensor arg_reduce(Op op, const Tensor& x, int dim, bool keepdim) {
  if (x.rank() == 0) return arg_reduce(op, reshape(x, {1}), 0, false);
  return dispatch_op(op, i64, {dim, keepdim}, x);
}

// Sums over halves are taken in f32 all the way, as one kernel would.
Tensor widened(const Tensor& x) {
  return is_half(x.dtype()) || !is_floating(x.dtype()) ? cast(x, f32) : x;
}
// The maximum that softmax and logsumexp subtract. Not recorded for gradients, since it does not
// affect the result.
Tensor maximum_to_subtract(const Tensor& x, std::int64_t mask) {
  const ExcludeKeys constant(bit(Key::autograd));
  return reduce(Op::max, x, mask, true);
}
DType floating_like(const Tensor& x) { return is_floating(x.dtype()) ? x.dtype() : f32; }

Tensor centred(const Tensor& x, std::int64_t mask) { return x - reduce(Op::mean, x, mask, true); }

double degrees_of_freedom(const Tensor& x, std::int64_t mask, int correction) {
  std::int64_t n = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (mask >> i & 1) n *= x.shape()[i];
  }
  return static_cast<double>(std::max<std::int64_t>(n - correction, 0));
}

}  // namespace

// PyTorch's `any` and `all` alone take an empty list for no dimension.
#define BRRR_REDUCTION(name, types, rule, ...)                                 \
  Tensor name(const Tensor& x) {                                               \
    require_defined(#name, x);                                                 \
    return reduce(Op::name, x, all_dims(x), false);                            \
  }                                                                            \
  Tensor name(const Tensor& x, const Dims& dims, bool keepdim) {               \
    require_defined(#name, x);                                                 \
    const bool none = dims.empty() && DTypeRule::rule == DTypeRule::predicate; \
    return reduce(Op::name, x, none ? 0 : mask_of(#name, x, dims), keepdim);   \
  }
#define BRRR_ARG_REDUCTION(name, ...)                                        \
  Tensor name(const Tensor& x) {                                             \
    require_defined(#name, x);                                               \
    return arg_reduce(Op::name, flatten(x), 0, false);                       \
  }                                                                          \
  Tensor name(const Tensor& x, int dim, bool keepdim) {                      \
    require_defined(#name, x);                                               \
    return arg_reduce(Op::name, x, wrap_dim(#name, dim, x.rank()), keepdim); \
  }
#include "brrr/dispatch/ops.def"

Tensor var(const Tensor& x, const Dims& dims, bool keepdim, int correction) {
  const Composite scope("var", x);
  const std::int64_t mask = mask_of("var", x, dims);
  const Tensor squares = square(centred(widened(x), mask));
  return cast(reduce(Op::sum, squares, mask, keepdim) / degrees_of_freedom(x, mask, correction),
              floating_like(x));
}

Tensor std(const Tensor& x, const Dims& dims, bool keepdim, int correction) {
  const Composite scope("std", x);
  const std::int64_t mask = mask_of("std", x, dims);
  // Computed as a norm, whose gradient at 0 is 0; that of the square root of the variance is
  // infinite.
  const Tensor length = reduce(Op::norm, centred(widened(x), mask), mask, keepdim);
  return cast(length / std::sqrt(degrees_of_freedom(x, mask, correction)), floating_like(x));
}
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  const Composite scope("logsumexp", x);
  const std::int64_t mask = mask_of("logsumexp", x, dims);
  const Tensor wide = widened(x);
  if (x.numel() == 0)  // no largest element to subtract; a sum of nothing gives -inf
    return cast(log(reduce(Op::sum, exp(wide), mask, keepdim)), floating_like(x));
  const Tensor most = maximum_to_subtract(wide, mask);
  // Subtracting an infinite maximum would give NaN: the result is that infinity.
  const Tensor shift = where(isinf(most), 0.0, most);
  Tensor result = log(reduce(Op::sum, exp(wide - shift), mask, true)) + shift;
  if (!keepdim) {
    Dims shape;
    for (int i = 0; i < x.rank(); ++i) {
      if (!(mask >> i & 1)) shape.push_back(x.shape()[i]);
    }
    result = reshape(result, shape);
  }
  return cast(result, floating_like(x));
}

namespace infer {

void cumsum(const Call& call, OutputSpec* out) { out[0] = like(call.input(0), call.dtype); }

}  // namespace infer

Tensor cumsum(const Tensor& x, int dim) {
  require_defined("cumsum", x);
  dim = wrap_dim("cumsum", dim, x.rank());
  if (x.rank() == 0) return reshape(cumsum(reshape(x, {1}), 0), {});
  return dispatch_op(Op::cumsum, is_floating(x.dtype()) ? x.dtype() : i64, {dim}, x);
}

Tensor softmax(const Tensor& x, int dim) {
  const Composite scope("softmax", x);
  const Dims d = {wrap_dim("softmax", dim, x.rank())};
  if (x.numel() == 0)
    return cast(exp(widened(x)), floating_like(x));  // there is no largest element
  Tensor result;
  {
    const ExcludeKeys unrecorded(bit(Key::autograd));
    const Tensor wide = widened(x);
    const Tensor weights = exp(wide - maximum_to_subtract(wide, mask_of("softmax", wide, d)));
    result = cast(weights / sum(weights, d, true), floating_like(x));
  }
  if (!is_recorded(x)) return result;
  return dispatch_op(Op::softmax_of, result.dtype(), {d[0]}, result, x);
}

Tensor log_softmax(const Tensor& x, int dim) {
  const Composite scope("log_softmax", x);
  const Dims d = {wrap_dim("log_softmax", dim, x.rank())};
  const Tensor wide = widened(x);
  if (x.numel() == 0) return cast(exp(wide), floating_like(x));  // there is no largest element
  const Tensor shifted = wide - maximum_to_subtract(wide, mask_of("log_softmax", wide, d));
  return cast(shifted - log(sum(exp(shifted), d, true)), floating_like(x));
}

namespace {

Dims trailing(const char* op, const Tensor& x, int dims, const Tensor& parameter) {
  if (dims < 1 || dims > x.rank()) {
    fail("[{}] expected to normalize between 1 and {} dimensions of {}, got {}", op, x.rank(),
         x.describe(), dims);
  }
  if (parameter.defined() && !std::ranges::equal(parameter.shape(), x.shape().last(dims))) {
    fail("[{}] expected weight and bias of shape {}, got {}", op, to_string(x.shape().last(dims)),
         parameter.describe());
  }
  Dims result;
  for (int i = x.rank() - dims; i < x.rank(); ++i) result.push_back(i);
  return result;
}

void check_eps(const char* op, double eps) {
  if (!(eps >= 0)) fail("[{}] expected eps of at least 0, got {}", op, eps);
}

// `values` over the square root of their mean square, scaled and shifted, in x's type.
Tensor normalized(const Tensor& x, const Tensor& values, const Dims& over, double eps,
                  const Tensor& weight, const Tensor& bias) {
  Tensor result = values * rsqrt(mean(square(values), over, true) + eps);
  if (weight.defined()) result = result * weight;
  if (bias.defined()) result = result + bias;
  return cast(result, floating_like(x));
}

}  // namespace

Tensor layer_norm(const Tensor& x, int dims, const Tensor& weight, const Tensor& bias, double eps) {
  const Composite scope("layer_norm", x);
  check_eps("layer_norm", eps);
  const Dims over = trailing("layer_norm", x, dims, weight);
  trailing("layer_norm", x, dims, bias);
  const Tensor wide = widened(x);
  const Tensor centred = wide - mean(wide, over, true);
  return normalized(x, centred, over, eps, weight, bias);
}

Tensor rms_norm(const Tensor& x, int dims, const Tensor& weight, double eps) {
  const Composite scope("rms_norm", x);
  check_eps("rms_norm", eps);
  const Dims over = trailing("rms_norm", x, dims, weight);
  return normalized(x, widened(x), over, eps, weight, {});
}

}  // namespace brrr
