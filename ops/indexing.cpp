// Functions that select, scatter and check elements, with the shape rules of their rows.

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/scalar_attr.h"
#include "brrr/ops/shapes.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

// A 0-d tensor, as PyTorch indexes it: a vector of one element.
Tensor lifted(const Tensor& x) { return x.rank() == 0 ? reshape(x, {1}) : x; }
Tensor shaped_as(const Tensor& like, const Tensor& result) {
  return like.rank() == 0 ? reshape(result, {}) : result;
}

template <class... Tensors>
Tensor along(Op op, int dim, const Tensor& x, const Tensors&... others) {
  return dispatch_op(op, x.dtype(), {wrap_dim(op_info(op).name, dim, x.rank())}, x, others...);
}

Tensor triangle(const char* op, const Tensor& x, int diagonal, bool upper) {
  require_defined(op, x);
  const CompositeScope scope(op);
  if (x.rank() < 2) fail("[{}] expected at least 2 dimensions, got {}", op, x.describe());
  return dispatch_op(Op::triangle, x.dtype(), {diagonal, upper}, x);
}

}  // namespace

namespace infer {

void gather(const Call& call, OutputSpec* out) {
  const Tensor &x = call.input(0), &index = call.input(1);
  const int dim = static_cast<int>(call.attrs[0].i());
  bool fits = category_of(index.dtype()) == Category::integer && index.rank() == x.rank();
  for (int d = 0; fits && d < x.rank(); ++d) fits = d == dim || index.shape()[d] <= x.shape()[d];
  if (!fits) {
    fail(
        "[gather] expected an integer index of the rank of {} and no larger outside dimension {}, "
        "got {}",
        x.describe(), dim, index.describe());
  }
  out[0] = {x.dtype(), x.device(), Dims(index.shape())};
}

void index_select(const Call& call, OutputSpec* out) {
  const Tensor &x = call.input(0), &index = call.input(1);
  if (category_of(index.dtype()) != Category::integer || index.rank() != 1) {
    fail("[index_select] expected a 1-d integer index, got {}", index.describe());
  }
  Dims shape(x.shape());
  shape[static_cast<int>(call.attrs[0].i())] = index.numel();
  out[0] = {x.dtype(), x.device(), shape};
}

void scatter_add(const Call& call, OutputSpec* out) {
  const Tensor &base = call.input(0), &index = call.input(1), &source = call.input(2);
  const int dim = static_cast<int>(call.attrs[0].i());
  bool fits = category_of(index.dtype()) == Category::integer && index.rank() == base.rank() &&
              source.rank() == base.rank() && source.dtype() == base.dtype();
  for (int d = 0; fits && d < base.rank(); ++d) {
    fits =
        index.shape()[d] <= source.shape()[d] && (d == dim || index.shape()[d] <= base.shape()[d]);
  }
  if (!fits) {
    fail(
        "[scatter_add] expected an integer index that fits {} outside dimension {} and a source of "
        "that type at least as large, got index {} and source {}",
        base.describe(), dim, index.describe(), source.describe());
  }
  out[0] = like(base);
}

void checked(const Call& call, OutputSpec* out) { out[0] = like(call.input(0)); }

void triangle(const Call& call, OutputSpec* out) { out[0] = like(call.input(0)); }

}  // namespace infer

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  require_defined("gather", x, index);
  if (x.rank() > 0 && index.rank() > 0) [[likely]]
    return along(Op::gather, dim, x, index);
  const CompositeScope scope("gather");
  return shaped_as(index, along(Op::gather, dim, lifted(x), lifted(index)));
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  require_defined("index_select", x, index);
  if (x.rank() > 0 && index.rank() > 0) [[likely]]
    return along(Op::index_select, dim, x, index);
  if (x.rank() == 0 && index.numel() != 1) {
    fail("[index_select] expected one index into a 0-d tensor, got {}", index.describe());
  }
  const CompositeScope scope("index_select");
  return shaped_as(x, along(Op::index_select, dim, lifted(x), lifted(index)));
}

Tensor embedding(const Tensor& weight, const Tensor& index) {
  const Composite scope("embedding", weight, index);
  if (weight.rank() != 2)
    fail("[embedding] expected a weight of [rows, width], got {}", weight.describe());
  if (category_of(index.dtype()) != Category::integer)
    fail("[embedding] expected integer indices, got {}", index.describe());
  Dims shape(index.shape());
  shape.push_back(weight.size(1));
  return reshape(index_select(weight, 0, index.rank() == 1 ? index : flatten(index)), shape);
}

Tensor scatter_add(const Tensor& base, int dim, const Tensor& index, const Tensor& source) {
  require_defined("scatter_add", base, index, source);
  if (base.rank() > 0 && index.rank() > 0 && source.rank() > 0) [[likely]]
    return along(Op::scatter_add, dim, base, index, source);
  const CompositeScope scope("scatter_add");
  return shaped_as(base, along(Op::scatter_add, dim, lifted(base), lifted(index), lifted(source)));
}

Tensor checked(const Tensor& x, Scalar low, Scalar high) {
  require_defined("checked", x);
  if (!(low.to_double() <= high.to_double())) {
    fail("[checked] expected bounds in order, got {} and {}", to_string(low), to_string(high));
  }
  const DType dtype = x.dtype();
  return dispatch_op(Op::checked, dtype,
                     {scalar_attr("checked", dtype, low), scalar_attr("checked", dtype, high)}, x);
}

Tensor tril(const Tensor& x, int diagonal) { return triangle("tril", x, diagonal, false); }
Tensor triu(const Tensor& x, int diagonal) { return triangle("triu", x, diagonal, true); }

Tensor nonzero(const Tensor& condition) {
  require_defined("nonzero", condition);
  refuse_while_tracing("nonzero", "the shape of its result depends on values");
  if (condition.is_meta()) {
    fail("[nonzero] expected a tensor with values, got {} without memory (meta)",
         condition.describe());
  }
  const Tensor mask = ne(condition, 0);
  const std::vector<bool> values = to_vector<bool>(mask);
  std::vector<std::int64_t> found;
  const int rank = condition.rank();
  const auto shape = condition.shape();
  std::int64_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    ++count;
    found.resize(found.size() + static_cast<std::size_t>(rank));
    auto rest = static_cast<std::int64_t>(i);
    for (int d = rank - 1; d >= 0; --d) {
      found[found.size() - static_cast<std::size_t>(rank - d)] = rest % shape[d];
      rest /= shape[d];
    }
  }
  return tensor<std::int64_t>(found, {count, rank}, condition.device());
}

Tensor flip(const Tensor& x, int dim) {
  const Composite scope("flip", x);
  dim = wrap_dim("flip", dim, x.rank());
  if (x.rank() == 0) return clone(x);
  return index_select(x, dim,
                      arange(x.shape()[dim] - 1, -1, -1, {.dtype = i64, .device = x.device()}));
}

}  // namespace brrr
