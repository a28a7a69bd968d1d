#include "brrr/ops/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr {

Dims broadcast_shapes(const char* op, std::span<const std::int64_t> a,
                      std::span<const std::int64_t> b) {
  const int rank = static_cast<int>(std::max(a.size(), b.size()));
  const int skip_a = rank - static_cast<int>(a.size()), skip_b = rank - static_cast<int>(b.size());
  Dims shape;
  for (int i = 0; i < rank; ++i) {
    const std::int64_t x = i < skip_a ? 1 : a[i - skip_a], y = i < skip_b ? 1 : b[i - skip_b];
    if (x != y && x != 1 && y != 1) {
      fail("[{}] expected shapes that broadcast, got {} and {}", op, to_string(a), to_string(b));
    }
    shape.push_back(x == 1 ? y : x);
  }
  return shape;
}

Dims broadcast_strides(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                       std::span<const std::int64_t> target) {
  Dims result = Dims::filled(static_cast<int>(target.size()), 0);
  const int skip = static_cast<int>(target.size() - shape.size());
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    result[i + skip] = shape[i] == 1 && target[i + skip] != 1 ? 0 : strides[i];
  }
  return result;
}

int wrap_dim(const char* op, std::int64_t dim, int rank) {
  const int count = std::max(rank, 1);
  const std::int64_t wrapped = dim < 0 ? dim + count : dim;
  if (wrapped < 0 || wrapped >= count)
    fail("[{}] expected a dimension in [{}, {}], got {}", op, -count, count - 1, dim);
  return static_cast<int>(wrapped);
}

int wrap_existing_dim(const char* op, std::int64_t dim, int rank) {
  if (rank == 0) {
    fail("[{}] expected a tensor with dimensions, got a 0-d tensor and dimension {}", op, dim);
  }
  return wrap_dim(op, dim, rank);
}

bool view_strides(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides,
                  std::span<const std::int64_t> shape, Dims& result) {
  // Walk both shapes from the right, matching runs of old dimensions that have one stride with
  // runs of new ones.
  result = Dims::filled(static_cast<int>(shape.size()), 1);
  if (std::ranges::find(dims, 0) != dims.end()) {
    result = contiguous_strides(shape);
    return true;
  }
  int to = static_cast<int>(shape.size()) - 1;
  int from = static_cast<int>(dims.size()) - 1;
  while (from >= 0) {
    std::int64_t run = dims[from];
    const std::int64_t innermost = strides[from];
    while (from > 0 && (dims[from - 1] == 1 || run == 1 || strides[from - 1] == innermost * run)) {
      if (run == 1 && dims[from - 1] != 1) break;
      run *= dims[--from];
    }
    --from;
    if (run == 1) continue;
    std::int64_t filled = 1;
    while (to >= 0 && (filled < run || shape[to] == 1)) {
      result[to] = innermost * filled;
      filled *= shape[to--];
    }
    if (filled != run) return false;
  }
  return true;
}

namespace infer {
namespace {

const char* name_of(const Call& call) { return op_info(call.op).name; }

[[noreturn]] void shapes_disagree(const Call& call) {
  std::string shapes;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    shapes += fmt::format("{}{}",
                          i == 0                   ? ""
                          : i + 1 == call.n_inputs ? " and "
                                                   : ", ",
                          to_string(call.inputs[i]->shape()));
  }
  fail("[{}] expected shapes that broadcast, got {}", name_of(call), shapes);
}

}  // namespace

// Called for every broadcasting op, so it computes the shape in place, without intermediate shapes.
void pointwise(const Call& call, OutputSpec* out) {
  const OpInfo& info = op_info(call.op);
  int rank = 0;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) rank = std::max(rank, call.inputs[i]->rank());
  Dims& shape = out[0].shape;
  shape.resize(rank);
  for (int d = 0; d < rank; ++d) {
    std::int64_t size = 1;
    for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
      const TensorImpl& input = *TensorImpl::of(*call.inputs[i]);
      const int at = d - (rank - input.word.rank());
      const std::int64_t have = at < 0 ? 1 : input.dims[at];
      if (have == size || have == 1) continue;
      if (size != 1) shapes_disagree(call);
      size = have;
    }
    shape[d] = size;
  }
  out[0].dtype = info.rule == DTypeRule::predicate ? boolean : call.dtype;
  out[0].device = call.input(0).device();
}

void reduction(const Call& call, OutputSpec* out) {
  const OpInfo& info = op_info(call.op);
  const Tensor& x = call.input(0);
  const std::int64_t mask = call.attrs[0].i();
  const bool keepdim = call.attrs[1].i();
  Dims shape;
  bool nothing_to_reduce = false;
  for (int i = 0; i < x.rank(); ++i) {
    if (!(mask >> i & 1)) {
      shape.push_back(x.shape()[i]);
    } else {
      nothing_to_reduce |= x.shape()[i] == 0;
      if (keepdim) shape.push_back(1);
    }
  }
  if (nothing_to_reduce && info.rule == DTypeRule::same) {
    fail("[{}] expected at least one element to reduce, got {}", info.name, x.describe());
  }
  out[0] = {call.dtype, x.device(), shape};
}

void arg_reduction(const Call& call, OutputSpec* out) {
  const Tensor& x = call.input(0);
  const int dim = static_cast<int>(call.attrs[0].i());
  Dims shape(x.shape());
  if (shape[dim] == 0) {
    fail("[{}] expected at least one element to choose from, got {}", name_of(call), x.describe());
  }
  shape[dim] = 1;
  if (!call.attrs[1].i()) shape.erase(dim);
  out[0] = {i64, x.device(), shape};
}

void formula(const Call& call, OutputSpec* out) {
  const Formula& body = op_info(call.op).formula;
  const Tensor& first = call.input(0);
  for (int i = 0; i < body.elements; ++i) {
    const Tensor& x = call.input(i);
    if (!is_floating(x.dtype()) ||
        (i > 0 && !same_shape(*TensorImpl::of(x), *TensorImpl::of(first)))) {
      fail("[{}] expected {} of floating types and one shape, got {} beside {}", name_of(call),
           fmt::join(std::span(body.operands).first(body.elements), ", "), x.describe(),
           first.describe());
    }
  }
  for (int i = 1; i < body.written; ++i) {
    const Tensor& x = call.input(i);
    if (x.dtype() != call.input(1).dtype() || (x.dtype() == f64) != (first.dtype() == f64)) {
      fail("[{}] expected {} of one type, f64 for f64 alone, got {} and {} for {}", name_of(call),
           fmt::join(std::span(body.operands).subspan(1, body.written - 1), ", "),
           call.input(1).describe(), x.describe(), first.describe());
    }
  }
  for (std::uint32_t i = body.elements; i < call.n_inputs; ++i) {
    const Tensor& x = *call.inputs[i];
    if (!is_floating(x.dtype()) || x.rank() != 0) {
      fail("[{}] expected numbers or floating tensors of rank 0, got {}", name_of(call),
           x.describe());
    }
  }
  for (int i = 0; i < body.written; ++i) out[i] = like(call.input(i), call.input(i).dtype());
}

}  // namespace infer
}  // namespace brrr
