// Matrix products over any rank, on the one matmul row.
#include <fmt/format.h>

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"

namespace brrr {
namespace {

Tensor matrix_product(const Tensor& a, const Tensor& b) {
  const Tensor* inputs[] = {&a, &b};
  Call call(Op::matmul, inputs, 2);
  call.dtype = a.dtype();
  return dispatch(call);
}

// A matrix on the right of a batch is one larger product, when the batch lies evenly in memory.
bool is_one_product(const Tensor& a, const Tensor& b) {
  return b.rank() == 2 && a.rank() > 2 && a.is_contiguous() && a.size(-1) == b.size(0) &&
         a.numel() > 0 && a.dtype() == b.dtype();
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  require_defined("matmul", a);
  require_defined("matmul", b);
  if (a.rank() >= 2 && b.rank() >= 2) [[likely]] {
    if (is_one_product(a, b)) {
      Dims shape(a.shape());
      shape[shape.size() - 1] = b.size(1);
      return view(matrix_product(view(a, {-1, a.size(-1)}), b), shape);
    }
    return matrix_product(a, b);
  }
  if (a.rank() == 0 || b.rank() == 0) {
    fail(fmt::format("[matmul] expected tensors of at least 1 dimension, got {} and {}",
                     a.describe(), b.describe()));
  }
  if (a.dtype() != b.dtype()) {
    fail(fmt::format("[matmul] expected one dtype, got {} and {}", a.describe(), b.describe()));
  }
  if (a.size(-1) != b.size(b.rank() == 1 ? 0 : -2)) {
    fail(fmt::format("[matmul] expected inner dimensions to agree, got {} and {}", a.describe(),
                     b.describe()));
  }
  const Tensor left = a.rank() == 1 ? unsqueeze(a, 0) : a,
               right = b.rank() == 1 ? unsqueeze(b, 1) : b;
  Tensor product = matmul(left, right);
  if (b.rank() == 1) product = squeeze(product, -1);
  if (a.rank() == 1) product = squeeze(product, b.rank() == 1 ? -1 : -2);
  return product;
}

Tensor affine(const Tensor& x, const Tensor& factor, const Tensor& row) {
  require_defined("affine", x);
  require_defined("affine", factor);
  require_defined("affine", row);
  const CompositeScope scope("affine");
  if (row.rank() != 1 || factor.rank() < 2 || row.size(0) != factor.size(-1)) {
    fail(fmt::format("[affine] expected a factor and a row with its last dimension, got {} and {}",
                     factor.describe(), row.describe()));
  }
  if (factor.dtype() != x.dtype() || row.dtype() != x.dtype()) {
    fail(fmt::format("[affine] expected one dtype, got {}, {} and {}", x.describe(),
                     factor.describe(), row.describe()));
  }
  if (x.rank() < 2 || !is_floating(x.dtype())) return add(matmul(x, factor), row);
  if (is_one_product(x, factor)) {
    Dims shape(x.shape());
    shape[shape.size() - 1] = factor.size(1);
    return view(affine(view(x, {-1, x.size(-1)}), factor, row), shape);
  }
  const Tensor* inputs[] = {&x, &factor, &row};
  Call call(Op::affine, inputs, 3);
  call.dtype = x.dtype();
  return dispatch(call);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require_defined("linear", x);
  require_defined("linear", weight);
  const CompositeScope scope("linear");
  if (weight.rank() != 2 || x.rank() < 1 || x.size(-1) != weight.size(1)) {
    fail(
        fmt::format("[linear] expected a weight of [out, in] with the input's last dimension, got "
                    "weight {} and input {}",
                    weight.describe(), x.describe()));
  }
  if (weight.dtype() != x.dtype()) {
    fail(fmt::format("[linear] expected a weight of the input's type, got weight {} and input {}",
                     weight.describe(), x.describe()));
  }
  const Tensor factor = transpose(weight, 0, 1);
  if (!bias.defined()) return matmul(x, factor);
  if (bias.rank() != 1 || bias.size(0) != weight.size(0)) {
    fail(fmt::format("[linear] expected a bias of [{}], got {}", weight.size(0), bias.describe()));
  }
  if (bias.dtype() != x.dtype()) {
    fail(fmt::format("[linear] expected a bias of the input's type, got bias {} and input {}",
                     bias.describe(), x.describe()));
  }
  return affine(x, factor, bias);
}

}  // namespace brrr
