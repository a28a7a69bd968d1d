// Shared arithmetic on shapes: broadcasting, wrapping of dimensions, and their error messages.
#pragma once

#include <span>

#include <brrr/tensor/dims.h>
#include <brrr/tensor/tensor.h>

namespace brrr {

// Aligned at the right; sizes must be equal or 1. Throws "[op] expected shapes that broadcast, got
// ...".
Dims broadcast_shapes(const char* op, std::span<const std::int64_t> a,
                      std::span<const std::int64_t> b);

// Strides with which a tensor of `shape`/`strides` is read as `target`: 0 where it is broadcast.
Dims broadcast_strides(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                       std::span<const std::int64_t> target);

// A dimension counted from the end becomes one counted from the start; throws when out of range. As
// in PyTorch, a 0-d tensor has dimension 0 (and -1), so the result may be equal to the rank.
int wrap_dim(const char* op, std::int64_t dim, int rank);
// The same for ops that must have a dimension to work along.
int wrap_existing_dim(const char* op, std::int64_t dim, int rank);

// The strides with which `shape` views a tensor of these dims and strides; false when it would need
// a copy.
bool view_strides(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides,
                  std::span<const std::int64_t> shape, Dims& result);

}  // namespace brrr
