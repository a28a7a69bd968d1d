// Functions that lay out copies of elements anew: repeat, tile, roll.
#include <fmt/format.h>

#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"

namespace brrr {
namespace {

Tensor repeated(const char* op, const Tensor& x, const Dims& times) {
  Dims shape(x.shape());
  while (shape.size() < times.size()) shape.insert(0, 1);
  // All dimensions before one are a batch to it, all from it on an element: whatever the rank,
  // three dimensions do.
  Tensor result = x;
  for (int d = 0; d < shape.size(); ++d) {
    std::int64_t batch = 1, element = 1;
    for (int i = 0; i < shape.size(); ++i) (i < d ? batch : element) *= shape[i];
    if (times[d] < 0 || __builtin_mul_overflow(shape[d], times[d], &shape[d])) {
      fail(
          fmt::format("[{}] expected numbers of copies of at least 0 that fit into 63 bits, got {}",
                      op, to_string(times)));
    }
    if (times[d] == 1) continue;
    result =
        reshape(expand(reshape(result, {batch, 1, element}), {batch, times[d], element}), shape);
  }
  return result.shares_storage_with(x) ? clone(reshape(result, shape)) : reshape(result, shape);
}

}  // namespace

Tensor repeat(const Tensor& x, const Dims& times) {
  require_defined("repeat", x);
  const CompositeScope scope("repeat");
  if (times.size() < x.rank()) {
    fail(fmt::format("[repeat] expected a number of copies for each dimension of {}, got {}",
                     x.describe(), to_string(times)));
  }
  return repeated("repeat", x, times);
}

Tensor tile(const Tensor& x, const Dims& times) {
  require_defined("tile", x);
  const CompositeScope scope("tile");
  Dims all = times;
  while (all.size() < x.rank()) all.insert(0, 1);
  return repeated("tile", x, all);
}

Tensor roll(const Tensor& x, std::int64_t shift, int dim) {
  require_defined("roll", x);
  const CompositeScope scope("roll");
  dim = wrap_dim("roll", dim, x.rank());
  if (x.numel() == 0 || x.rank() == 0) return clone(x);
  const std::int64_t size = x.shape()[dim];
  const std::int64_t head = (shift % size + size) % size;  // elements that enter at the start
  return cat({narrow(x, dim, size - head, head), narrow(x, dim, 0, size - head)}, dim);
}

}  // namespace brrr
