#include "brrr/tensor/dims.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "brrr/tensor/fail.h"

namespace brrr {

void Dims::too_long(std::size_t size) {
  fail("[shape] expected at most {} dimensions, got {}", kMaxDims, size);
}

std::int64_t core::checked_numel(std::span<const std::int64_t> shape, std::size_t element_size,
                                 const char* op) {
  std::int64_t numel = 1;
  bool overflow = false, empty = false;
  for (std::int64_t d : shape) {
    if (d < 0) fail("[{}] expected dimensions of at least 0, got shape {}", op, to_string(shape));
    if (d == 0)
      empty = true;
    else
      overflow |= __builtin_mul_overflow(numel, d, &numel);
  }
  std::int64_t bytes;
  overflow |= __builtin_mul_overflow(numel, static_cast<std::int64_t>(element_size), &bytes);
  if (overflow) {
    fail("[{}] expected a size that fits into 63 bits, got shape {} of {}-byte elements", op,
         to_string(shape), element_size);
  }
  return empty ? 0 : numel;
}

Dims core::contiguous_strides(std::span<const std::int64_t> shape) {
  Dims strides = Dims::filled(static_cast<int>(shape.size()), 1);
  for (int i = strides.size() - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * std::max<std::int64_t>(shape[i + 1], 1);
  return strides;
}

AroundDim::AroundDim(std::span<const std::int64_t> shape, int dim) {
  for (int d = 0; d < static_cast<int>(shape.size()); ++d)
    (d < dim ? outer : d == dim ? n : inner) *= shape[d];
}

std::string to_string(std::span<const std::int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

}  // namespace brrr
