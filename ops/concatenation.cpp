// Concatenation, and the functions that join copies or parts of one tensor.

#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/shapes.h"
#include "brrr/tensor/fail.h"

namespace brrr {

namespace infer {

void cat(const Call& call, OutputSpec* out) {
  const int dim = static_cast<int>(call.attrs[0].i());
  const Tensor& first = call.input(0);
  Dims shape(first.shape());
  for (std::uint32_t i = 1; i < call.n_inputs; ++i) {
    const Tensor& part = call.input(static_cast<int>(i));
    bool fits = part.rank() == first.rank() && part.dtype() == first.dtype();
    for (int d = 0; fits && d < first.rank(); ++d)
      fits = d == dim || part.shape()[d] == first.shape()[d];
    if (!fits) {
      fail("[cat] expected tensors that differ only in dimension {}, got {} and {} at position {}",
           dim, first.describe(), part.describe(), i);
    }
    if (__builtin_add_overflow(shape[dim], part.shape()[dim], &shape[dim]))
      fail("[cat] expected sizes with a sum that fits into 63 bits, got {} and more",
           first.describe());
  }
  out[0] = {first.dtype(), first.device(), shape};
}

}  // namespace infer

Tensor cat(const std::vector<Tensor>& parts, int dim) {
  if (parts.empty()) fail("[cat] expected at least one tensor, got none");
  const auto is_empty_list = [](const Tensor& x) { return x.rank() == 1 && x.numel() == 0; };
  const Tensor* shaped = nullptr;  // the first part that is not an empty list
  DType dtype = parts[0].defined() ? parts[0].dtype() : f32;
  for (const Tensor& part : parts) {
    if (!part.defined()) undefined_operand("cat", static_cast<int>(&part - parts.data()));
    dtype = promote(dtype, part.dtype());
    if (!shaped && !is_empty_list(part)) shaped = &part;
  }
  if (!shaped) shaped = &parts[0];
  std::vector<Tensor> converted;
  std::vector<const Tensor*> inputs;
  converted.reserve(parts.size());
  for (const Tensor& part : parts) {
    // Skips f32[0], which may be joined with tensors of any rank, as in PyTorch: programs use it as
    // the initial value when they collect tensors.
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
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].defined()) undefined_operand("stack", static_cast<int>(i));
  }
  const Composite scope("stack", parts[0]);
  dim = wrap_dim("stack", dim, parts[0].rank() + 1);
  std::vector<Tensor> raised;
  raised.reserve(parts.size());
  for (const Tensor& part : parts) {
    if (!std::ranges::equal(part.shape(), parts[0].shape())) {
      fail("[stack] expected tensors of one shape, got {} and {}", parts[0].describe(),
           part.describe());
    }
    raised.push_back(unsqueeze(part, dim));
  }
  return cat(raised, dim);
}

namespace {

Tensor repeated(const char* op, const Tensor& x, const Dims& times) {
  Dims shape(x.shape());
  while (shape.size() < times.size()) shape.insert(0, 1);
  // For each dimension, the earlier ones form a batch and the later ones an element, so three
  // dimensions suffice for any rank.
  Tensor result = x;
  for (int d = 0; d < shape.size(); ++d) {
    std::int64_t batch = 1, element = 1;
    for (int i = 0; i < shape.size(); ++i) (i < d ? batch : element) *= shape[i];
    if (times[d] < 0 || __builtin_mul_overflow(shape[d], times[d], &shape[d])) {
      fail("[{}] expected numbers of copies of at least 0 that fit into 63 bits, got {}", op,
           to_string(times));
    }
    if (times[d] == 1) continue;
    result =
        reshape(expand(reshape(result, {batch, 1, element}), {batch, times[d], element}), shape);
  }
  return result.shares_storage_with(x) ? clone(reshape(result, shape)) : reshape(result, shape);
}

}  // namespace

Tensor repeat(const Tensor& x, const Dims& times) {
  const Composite scope("repeat", x);
  if (times.size() < x.rank()) {
    fail("[repeat] expected a number of copies for each dimension of {}, got {}", x.describe(),
         to_string(times));
  }
  return repeated("repeat", x, times);
}

Tensor tile(const Tensor& x, const Dims& times) {
  const Composite scope("tile", x);
  Dims all = times;
  while (all.size() < x.rank()) all.insert(0, 1);
  return repeated("tile", x, all);
}

Tensor roll(const Tensor& x, std::int64_t shift, int dim) {
  const Composite scope("roll", x);
  dim = wrap_dim("roll", dim, x.rank());
  if (x.numel() == 0 || x.rank() == 0) return clone(x);
  const std::int64_t size = x.shape()[dim];
  const std::int64_t head = (shift % size + size) % size;  // elements that enter at the start
  return cat({narrow(x, dim, size - head, head), narrow(x, dim, 0, size - head)}, dim);
}

}  // namespace brrr
