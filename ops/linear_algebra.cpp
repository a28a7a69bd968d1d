// Matrix products over any rank, on the one matmul row.

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/shapes.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

Tensor matrix_product(const Tensor& a, const Tensor& b) {
  return dispatch_op(Op::matmul, a.dtype(), {}, a, b);
}

// A contiguous batch times one matrix is one larger product.
bool is_one_product(const Tensor& a, const Tensor& b) {
  return b.rank() == 2 && a.rank() > 2 && a.is_contiguous() && a.size(-1) == b.size(0) &&
         a.numel() > 0 && a.dtype() == b.dtype();
}

}  // namespace

namespace infer {

void matmul(const Call& call, OutputSpec* out) {
  const char* op = op_info(call.op).name;
  const Tensor &a = call.input(0), &b = call.input(1);
  if (a.dtype() != b.dtype()) {
    fail("[{}] expected one dtype, got {} and {}", op, a.describe(), b.describe());
  }
  if (a.rank() < 2 || b.rank() < 2) {
    fail("[{}] expected tensors of at least 1 dimension, got {} and {}", op, a.describe(),
         b.describe());
  }
  if (a.size(-1) != b.size(-2)) {
    fail("[{}] expected inner dimensions to agree, got {} and {}", op, a.describe(), b.describe());
  }
  const auto batch_a = a.shape().first(a.rank() - 2), batch_b = b.shape().first(b.rank() - 2);
  const std::size_t common = std::min(batch_a.size(), batch_b.size());
  for (std::size_t i = 1; i <= common; ++i) {
    const std::int64_t x = batch_a[batch_a.size() - i], y = batch_b[batch_b.size() - i];
    if (x != y && x != 1 && y != 1) {
      fail("[{}] expected batch dimensions that broadcast, got {} and {}", op, a.describe(),
           b.describe());
    }
  }
  Dims shape = broadcast_shapes(op, batch_a, batch_b);
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  out[0] = {a.dtype(), a.device(), shape};
}

void affine(const Call& call, OutputSpec* out) { matmul(call, out); }

}  // namespace infer

Tensor matmul(const Tensor& a, const Tensor& b) {
  require_defined("matmul", a, b);
  if (a.rank() >= 2 && b.rank() >= 2) [[likely]] {
    if (is_one_product(a, b)) {
      Dims shape(a.shape());
      shape[shape.size() - 1] = b.size(1);
      return view(matrix_product(view(a, {-1, a.size(-1)}), b), shape);
    }
    return matrix_product(a, b);
  }
  if (a.rank() == 0 || b.rank() == 0) {
    fail("[matmul] expected tensors of at least 1 dimension, got {} and {}", a.describe(),
         b.describe());
  }
  if (a.dtype() != b.dtype()) {
    fail("[matmul] expected one dtype, got {} and {}", a.describe(), b.describe());
  }
  if (a.size(-1) != b.size(b.rank() == 1 ? 0 : -2)) {
    fail("[matmul] expected inner dimensions to agree, got {} and {}", a.describe(), b.describe());
  }
  const Tensor left = a.rank() == 1 ? unsqueeze(a, 0) : a,
               right = b.rank() == 1 ? unsqueeze(b, 1) : b;
  Tensor product = matmul(left, right);
  if (b.rank() == 1) product = squeeze(product, -1);
  if (a.rank() == 1) product = squeeze(product, b.rank() == 1 ? -1 : -2);
  return product;
}

Tensor affine(const Tensor& x, const Tensor& factor, const Tensor& row) {
  const Composite scope("affine", x, factor, row);
  if (row.rank() != 1 || factor.rank() < 2 || row.size(0) != factor.size(-1)) {
    fail("[affine] expected a factor and a row with its last dimension, got {} and {}",
         factor.describe(), row.describe());
  }
  if (factor.dtype() != x.dtype() || row.dtype() != x.dtype()) {
    fail("[affine] expected one dtype, got {}, {} and {}", x.describe(), factor.describe(),
         row.describe());
  }
  if (x.rank() < 2 || !is_floating(x.dtype())) return add(matmul(x, factor), row);
  if (is_one_product(x, factor)) {
    Dims shape(x.shape());
    shape[shape.size() - 1] = factor.size(1);
    return view(affine(view(x, {-1, x.size(-1)}), factor, row), shape);
  }
  return dispatch_op(Op::affine, x.dtype(), {}, x, factor, row);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Composite scope("linear", x, weight);
  if (weight.rank() != 2 || x.rank() < 1 || x.size(-1) != weight.size(1)) {
    fail(
        "[linear] expected a weight of [out, in] with the input's last dimension, got weight {} "
        "and input {}",
        weight.describe(), x.describe());
  }
  if (weight.dtype() != x.dtype()) {
    fail("[linear] expected a weight of the input's type, got weight {} and input {}",
         weight.describe(), x.describe());
  }
  const Tensor factor = transpose(weight, 0, 1);
  if (!bias.defined()) return matmul(x, factor);
  if (bias.rank() != 1 || bias.size(0) != weight.size(0)) {
    fail("[linear] expected a bias of [{}], got {}", weight.size(0), bias.describe());
  }
  if (bias.dtype() != x.dtype()) {
    fail("[linear] expected a bias of the input's type, got bias {} and input {}", bias.describe(),
         x.describe());
  }
  return affine(x, factor, bias);
}

}  // namespace brrr
