// Functions that pick, place, check and join elements.
#include <fmt/format.h>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/numbers.h"
#include "brrr/tensor/error.h"

namespace brrr {
namespace {

// A 0-d tensor, as PyTorch indexes it: a vector of one element.
Tensor lifted(const Tensor& x) { return x.rank() == 0 ? reshape(x, {1}) : x; }
Tensor shaped_as(const Tensor& like, const Tensor& result) {
  return like.rank() == 0 ? reshape(result, {}) : result;
}

template <class... Tensors>
Tensor along(Op op, int dim, const Tensors&... operands) {
  const Tensor* inputs[] = {&operands...};
  Call call(op, inputs, sizeof...(operands));
  call.dtype = inputs[0]->dtype();
  call.add_attr(wrap_dim(op_info(op).name, dim, inputs[0]->rank()));
  return dispatch(call);
}

Tensor triangle(const char* op, const Tensor& x, int diagonal, bool upper) {
  require_defined(op, x);
  const CompositeScope scope(op);
  if (x.rank() < 2)
    fail(fmt::format("[{}] expected at least 2 dimensions, got {}", op, x.describe()));
  const Tensor* inputs[] = {&x};
  Call call(Op::triangle, inputs, 1);
  call.dtype = x.dtype();
  call.add_attr(diagonal);
  call.add_attr(upper);
  return dispatch(call);
}

}  // namespace

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  require_defined("gather", x);
  require_defined("gather", index);
  if (x.rank() > 0 && index.rank() > 0) [[likely]]
    return along(Op::gather, dim, x, index);
  const CompositeScope scope("gather");
  return shaped_as(index, along(Op::gather, dim, lifted(x), lifted(index)));
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  require_defined("index_select", x);
  require_defined("index_select", index);
  if (x.rank() > 0 && index.rank() > 0) [[likely]]
    return along(Op::index_select, dim, x, index);
  if (x.rank() == 0 && index.numel() != 1) {
    fail(fmt::format("[index_select] expected one index into a 0-d tensor, got {}",
                     index.describe()));
  }
  const CompositeScope scope("index_select");
  return shaped_as(x, along(Op::index_select, dim, lifted(x), lifted(index)));
}

Tensor embedding(const Tensor& weight, const Tensor& index) {
  require_defined("embedding", weight);
  require_defined("embedding", index);
  const CompositeScope scope("embedding");
  if (weight.rank() != 2)
    fail(fmt::format("[embedding] expected a weight of [rows, width], got {}", weight.describe()));
  if (category_of(index.dtype()) != Category::integer)
    fail(fmt::format("[embedding] expected integer indices, got {}", index.describe()));
  Dims shape(index.shape());
  shape.push_back(weight.size(1));
  return reshape(index_select(weight, 0, index.rank() == 1 ? index : flatten(index)), shape);
}

Tensor scatter_add(const Tensor& base, int dim, const Tensor& index, const Tensor& source) {
  require_defined("scatter_add", base);
  require_defined("scatter_add", index);
  require_defined("scatter_add", source);
  if (base.rank() > 0 && index.rank() > 0 && source.rank() > 0) [[likely]]
    return along(Op::scatter_add, dim, base, index, source);
  const CompositeScope scope("scatter_add");
  return shaped_as(base, along(Op::scatter_add, dim, lifted(base), lifted(index), lifted(source)));
}

Tensor checked(const Tensor& x, Scalar low, Scalar high) {
  require_defined("checked", x);
  if (!(low.to_double() <= high.to_double())) {
    fail(fmt::format("[checked] expected bounds in order, got {} and {}", to_string(low),
                     to_string(high)));
  }
  const Tensor* inputs[] = {&x};
  Call call(Op::checked, inputs, 1);
  call.dtype = x.dtype();
  call.add_attr(number_in("checked", x.dtype(), low));
  call.add_attr(number_in("checked", x.dtype(), high));
  return dispatch(call);
}

Tensor tril(const Tensor& x, int diagonal) { return triangle("tril", x, diagonal, false); }
Tensor triu(const Tensor& x, int diagonal) { return triangle("triu", x, diagonal, true); }

Tensor nonzero(const Tensor& condition) {
  require_defined("nonzero", condition);
  refuse_while_tracing("nonzero", "the shape of its result depends on values");
  if (condition.is_meta()) {
    fail(fmt::format("[nonzero] expected a tensor with values, got {} without memory (meta)",
                     condition.describe()));
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
  require_defined("flip", x);
  const CompositeScope scope("flip");
  dim = wrap_dim("flip", dim, x.rank());
  if (x.rank() == 0) return clone(x);
  return index_select(x, dim,
                      arange(x.shape()[dim] - 1, -1, -1, {.dtype = i64, .device = x.device()}));
}

Tensor cat(const std::vector<Tensor>& parts, int dim) {
  if (parts.empty()) fail("[cat] expected at least one tensor, got none");
  const auto is_empty_list = [](const Tensor& x) { return x.rank() == 1 && x.numel() == 0; };
  const Tensor* shaped = nullptr;  // the first part that is not an empty list
  DType dtype = parts[0].defined() ? parts[0].dtype() : f32;
  for (const Tensor& part : parts) {
    require_defined("cat", part);
    dtype = promote(dtype, part.dtype());
    if (!shaped && !is_empty_list(part)) shaped = &part;
  }
  if (!shaped) shaped = &parts[0];
  std::vector<Tensor> converted;
  std::vector<const Tensor*> inputs;
  converted.reserve(parts.size());
  for (const Tensor& part : parts) {
    // An empty list joins tensors of any rank, as in PyTorch: it is what one starts to collect
    // with.
    if (shaped->rank() != 1 && is_empty_list(part)) continue;
    inputs.push_back(part.dtype() == dtype ? &part : &converted.emplace_back(cast(part, dtype)));
  }
  Call call(Op::cat, inputs.data(), static_cast<std::uint32_t>(inputs.size()));
  call.dtype = dtype;
  call.add_attr(wrap_existing_dim("cat", dim, shaped->rank()));
  return dispatch(call);
}

Tensor stack(const std::vector<Tensor>& parts, int dim) {
  if (parts.empty()) fail("[stack] expected at least one tensor, got none");
  require_defined("stack", parts[0]);
  const CompositeScope scope("stack");
  dim = wrap_dim("stack", dim, parts[0].rank() + 1);
  std::vector<Tensor> raised;
  raised.reserve(parts.size());
  for (const Tensor& part : parts) {
    require_defined("stack", part);
    if (!std::ranges::equal(part.shape(), parts[0].shape())) {
      fail(fmt::format("[stack] expected tensors of one shape, got {} and {}", parts[0].describe(),
                       part.describe()));
    }
    raised.push_back(unsqueeze(part, dim));
  }
  return cat(raised, dim);
}

}  // namespace brrr
