// Whether strided views of one block of memory share bytes.
#pragma once

#include <brrr/tensor/tensor.h>

namespace brrr {

// Elements of a block: shape, strides and offset in elements of `element` bytes.
struct Region {
  std::span<const std::int64_t> shape, strides;
  std::int64_t offset = 0;
  std::int64_t element = 1;
};
Region region_of(const Tensor& tensor);

// The bytes from the first to one past the last that a region reaches; empty when it has no
// elements.
struct Extent {
  std::int64_t low = 0, high = 0;
};
Extent extent_of(const Region& region);

// Whether elements of two regions of one block may share bytes. Exact for regions whose extents are
// apart and for those that interleave (every second column); anything closer counts as overlap.
bool may_overlap(const Region& a, const Region& b);

// Whether two elements of a region may share bytes. Exact where each stride steps over all that the
// smaller ones reach, as in every view of distinct elements made here; an import may be closer.
bool may_overlap_itself(const Region& region);

}  // namespace brrr
