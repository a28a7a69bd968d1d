// Views: rules that give a tensor other dims and strides over the same bytes, and the functions
// built on them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/shapes.h"
#include "brrr/tensor/fail.h"

namespace brrr {

namespace views {

Tensor view(const Call& call) {
  const Tensor& x = call.input(0);
  const auto shape = call.shape_from(0);
  if (x.is_contiguous()) [[likely]]
    return make_contiguous_view(x, shape);
  Dims strides;
  if (!view_strides(x.shape(), x.strides(), shape, strides)) {
    fail(
        "[view] expected a shape that {} with strides {} can be seen as without a copy, got {}; "
        "use reshape",
        x.describe(), to_string(x.strides()), to_string(shape));
  }
  return make_view(x, shape, strides);
}

Tensor permute(const Call& call) {
  const Tensor& x = call.input(0);
  Dims shape, strides;
  for (int i = 0; i < call.n_attrs; ++i) {
    shape.push_back(x.shape()[call.attrs[i].i()]);
    strides.push_back(x.strides()[call.attrs[i].i()]);
  }
  return make_view(x, shape, strides);
}

Tensor expand(const Call& call) {
  const Tensor& x = call.input(0);
  const auto shape = call.shape_from(0);
  return make_view(x, shape, broadcast_strides(x.shape(), x.strides(), shape));
}

Tensor slice(const Call& call) {
  return places(call.input(0), static_cast<int>(call.attrs[0].i()), call.attrs[1].i(),
                call.attrs[2].i(), call.attrs[3].i());
}

Tensor softmax_of(const Call& call) {
  const Tensor& x = call.input(0);
  return make_view(x, Dims(x.shape()), Dims(x.strides()));
}

Tensor places(const Tensor& x, int dim, std::int64_t start, std::int64_t length,
              std::int64_t step) {
  Dims shape(x.shape()), strides(x.strides());
  const std::int64_t offset = length == 0 ? 0 : start * strides[dim];
  shape[dim] = length;
  strides[dim] *= step;
  return make_view(x, shape, strides, offset);
}

}  // namespace views

namespace {

Tensor view_call(Op op, const Tensor& x, std::span<const std::int64_t> attrs) {
  const Tensor* inputs[] = {&x};
  Call call(op, inputs, 1);
  call.dtype = x.dtype();
  call.add_shape(attrs);
  return dispatch(call);
}

[[noreturn]] void wrong_shape(const char* op, const Tensor& x, const Dims& shape) {
  fail("[{}] expected a shape of {} elements, with at most one -1, for {}, got {}", op, x.numel(),
       x.describe(), to_string(shape));
}

// Checks the number of elements and fills in a -1, written to `filled`.
const Dims& resolve_shape(const char* op, const Tensor& x, const Dims& shape, Dims& filled) {
  int unknown = -1;
  std::int64_t known = 1;
  bool empty = false;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] > 0) {
      if (__builtin_mul_overflow(known, shape[i], &known)) wrong_shape(op, x, shape);
    } else if (shape[i] == 0) {
      empty = true;
    } else {
      if (shape[i] != -1 || unknown >= 0) wrong_shape(op, x, shape);
      unknown = i;
    }
  }
  if (empty) known = 0;
  if (unknown < 0) {
    if (known != x.numel()) wrong_shape(op, x, shape);
    return shape;
  }
  if (known == 0 && x.numel() == 0) {
    fail(
        "[{}] expected sizes that determine the one for -1, got {} for {}: the product of the "
        "others is 0, so it is ambiguous",
        op, to_string(shape), x.describe());
  }
  if (known == 0 || x.numel() % known != 0) wrong_shape(op, x, shape);
  filled = shape;
  filled[unknown] = x.numel() / known;
  return filled;
}

}  // namespace

Tensor view(const Tensor& x, const Dims& shape) {
  require_defined("view", x);
  Dims filled;
  return view_call(Op::view, x, resolve_shape("view", x, shape, filled));
}

Tensor reshape(const Tensor& x, const Dims& shape) {
  require_defined("reshape", x);
  Dims filled, strides;
  const Dims& resolved = resolve_shape("reshape", x, shape, filled);
  if (x.is_contiguous() || view_strides(x.shape(), x.strides(), resolved, strides))
    return view_call(Op::view, x, resolved);
  return view_call(Op::view, contiguous(x), resolved);
}

Tensor permute(const Tensor& x, const Dims& order) {
  require_defined("permute", x);
  Dims wrapped;
  std::uint32_t seen = 0;
  for (std::int64_t d : order) {
    wrapped.push_back(wrap_dim("permute", d, x.rank()));
    seen |= 1u << wrapped.back();
  }
  if (order.size() != x.rank() || seen != (1u << x.rank()) - 1) {
    fail("[permute] expected each dimension of {} once, got {}", x.describe(), to_string(order));
  }
  return view_call(Op::permute, x, wrapped);
}

namespace {

// The order in which `permute` changes nothing.
Dims own_order(const Tensor& x) {
  Dims order = Dims::filled(x.rank(), 0);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  require_defined("transpose", x);
  dim0 = wrap_dim("transpose", dim0, x.rank());
  dim1 = wrap_dim("transpose", dim1, x.rank());
  if (dim0 == dim1) return x;
  Dims order = own_order(x);
  std::swap(order[dim0], order[dim1]);
  return view_call(Op::permute, x, order);
}

Tensor movedim(const Tensor& x, int from, int to) {
  require_defined("movedim", x);
  from = wrap_dim("movedim", from, x.rank());
  to = wrap_dim("movedim", to, x.rank());
  if (from == to) return x;
  Dims order = own_order(x);
  order.erase(from);
  order.insert(to, from);
  return view_call(Op::permute, x, order);
}

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  require_defined("slice", x);
  dim = wrap_existing_dim("slice", dim, x.rank());
  if (step < 1) fail("[slice] expected a step of at least 1, got {}", step);
  const std::int64_t size = x.shape()[dim];
  const auto clamp = [size](std::int64_t i) {
    return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size);
  };
  start = clamp(start);
  end = clamp(end);
  const std::int64_t span = std::max<std::int64_t>(end - start, 0);
  const std::int64_t length = span / step + (span % step != 0);
  const std::int64_t attrs[] = {dim, start, length, length > 1 ? step : 1};
  return view_call(Op::slice, x, attrs);
}

Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  require_defined("narrow", x);
  dim = wrap_existing_dim("narrow", dim, x.rank());
  const std::int64_t size = x.shape()[dim], first = start < 0 ? start + size : start;
  if (first < 0 || length < 0 || first > size || length > size - first) {
    fail("[narrow] expected a range within dimension {} of {}, got start {} and length {}", dim,
         x.describe(), start, length);
  }
  return slice(x, dim, first, first + length);
}

std::int64_t wrap_index(const char* op, const Tensor& x, int dim, std::int64_t index) {
  const std::int64_t size = x.shape()[dim], wrapped = index < 0 ? index + size : index;
  if (wrapped < 0 || wrapped >= size) {
    fail("[{}] expected an index in [{}, {}) for dimension {} of {}, got {}", op, -size, size, dim,
         x.describe(), index);
  }
  return wrapped;
}

Tensor select(const Tensor& x, int dim, std::int64_t index) {
  require_defined("select", x);
  dim = wrap_existing_dim("select", dim, x.rank());
  return squeeze(narrow(x, dim, wrap_index("select", x, dim, index), 1), dim);
}

Tensor expand(const Tensor& x, const Dims& shape) {
  require_defined("expand", x);
  Dims target = shape;
  const int skip = target.size() - x.rank();
  bool fits = skip >= 0;
  for (int i = 0; fits && i < target.size(); ++i) {
    const std::int64_t have = i < skip ? 1 : x.shape()[i - skip];
    if (target[i] == -1 && i >= skip) target[i] = have;
    fits = target[i] >= 0 && (have == target[i] || have == 1);
  }
  if (!fits)
    fail("[expand] expected a shape that {} broadcasts to, got {}", x.describe(), to_string(shape));
  checked_numel(target, size_of(x.dtype()), "expand");
  return view_call(Op::expand, x, target);
}

Tensor sum_to(const Tensor& x, const Dims& shape) {
  require_defined("sum_to", x);
  if (std::ranges::equal(x.shape(), shape))
    return is_floating(x.dtype()) ? x : cast(x, i64);  // as `sum` widens
  const int skip = x.rank() - shape.size();
  bool fits = skip >= 0, inside = false;
  Dims dims;
  for (int i = 0; fits && i < x.rank(); ++i) {
    if (i >= skip && shape[i - skip] == x.shape()[i]) continue;
    fits = i < skip || shape[i - skip] == 1;
    inside |= i >= skip;
    dims.push_back(i);
  }
  if (!fits) {
    fail("[sum_to] expected a shape that broadcasts to {}, got {}", x.describe(), to_string(shape));
  }
  const Tensor total = sum(x, dims, inside);
  return inside && skip > 0 ? view(total, shape) : total;
}

namespace infer {

void unslice(const Call& call, OutputSpec* out) {
  out[0] = like(call.input(0));
  out[0].shape[static_cast<int>(call.attrs[0].i())] = call.attrs[2].i();
}

}  // namespace infer

Tensor unslice(const Tensor& x, int dim, std::int64_t start, std::int64_t size, std::int64_t step) {
  require_defined("unslice", x);
  dim = wrap_existing_dim("unslice", dim, x.rank());
  const std::int64_t length = x.shape()[dim];
  if (step < 1 || start < 0 || size < 0 ||
      (length > 0 && (start >= size || (length - 1) > (size - 1 - start) / step))) {
    fail(
        "[unslice] expected places of {} along dimension {} within a size of {}, got start {} and "
        "step {}",
        x.describe(), dim, size, start, step);
  }
  return dispatch_op(Op::unslice, x.dtype(), {dim, start, size, step}, x);
}

Tensor squeeze(const Tensor& x, int dim) {
  require_defined("squeeze", x);
  dim = wrap_dim("squeeze", dim, x.rank());
  if (x.rank() == 0 || x.shape()[dim] != 1) return x;
  Dims shape(x.shape());
  shape.erase(dim);
  return view_call(Op::view, x, shape);
}

Tensor squeeze(const Tensor& x) {
  require_defined("squeeze", x);
  Dims shape;
  for (std::int64_t d : x.shape()) {
    if (d != 1) shape.push_back(d);
  }
  return view_call(Op::view, x, shape);
}

Tensor unsqueeze(const Tensor& x, int dim) {
  require_defined("unsqueeze", x);
  if (x.rank() == kMaxDims)
    fail("[unsqueeze] expected fewer than {} dimensions, got {}", kMaxDims, x.describe());
  dim = wrap_dim("unsqueeze", dim, x.rank() + 1);
  Dims shape(x.shape());
  shape.insert(dim, 1);
  return view_call(Op::view, x, shape);
}

Tensor flatten(const Tensor& x, int first, int last) {
  require_defined("flatten", x);
  first = wrap_dim("flatten", first, x.rank());
  last = wrap_dim("flatten", last, x.rank());
  if (x.rank() == 0) return reshape(x, {1});
  if (first > last) fail("[flatten] expected first to be at most last, got {} and {}", first, last);
  Dims shape;
  std::int64_t merged = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (i >= first && i <= last) merged *= x.shape()[i];
    if (i == last) shape.push_back(merged);
    if (i < first || i > last) shape.push_back(x.shape()[i]);
  }
  return reshape(x, shape);
}

std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> sizes, int dim) {
  return split(x, std::span(sizes.begin(), sizes.size()), dim);
}

std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, int dim) {
  require_defined("split", x);
  dim = wrap_existing_dim("split", dim, x.rank());
  std::int64_t total = 0;
  bool fits = true;
  for (std::int64_t size : sizes)
    fits = fits && size >= 0 && !__builtin_add_overflow(total, size, &total);
  if (!fits || total != x.shape()[dim]) {
    fail("[split] expected sizes that add up to dimension {} of {}, got [{}]", dim, x.describe(),
         fmt::join(sizes, ", "));
  }
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (std::int64_t size : sizes) {
    parts.push_back(narrow(x, dim, start, size));
    start += size;
  }
  return parts;
}

std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim) {
  require_defined("split", x);
  dim = wrap_existing_dim("split", dim, x.rank());
  if (size < 1) fail("[split] expected a size of at least 1, got {}", size);
  std::vector<std::int64_t> sizes;
  std::int64_t rest = x.shape()[dim];
  for (; rest > size; rest -= size) sizes.push_back(size);
  sizes.push_back(rest);
  return split(x, sizes, dim);
}

std::vector<Tensor> chunk(const Tensor& x, int chunks, int dim) {
  require_defined("chunk", x);
  if (chunks < 1) fail("[chunk] expected at least 1 chunk, got {}", chunks);
  dim = wrap_existing_dim("chunk", dim, x.rank());
  const std::int64_t size = x.shape()[dim];
  return split(x, std::max<std::int64_t>(size / chunks + (size % chunks != 0), 1), dim);
}

}  // namespace brrr
