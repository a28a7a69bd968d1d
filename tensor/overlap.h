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

// Whether an element of one region shares bytes with an element of the other, both in one block.
// Exact for regions that a program makes by slicing, selecting, permuting and expanding, however
// they interleave. The general problem is as hard as subset sum: the search stops after a bounded
// number of steps, and an undecided case counts as overlap.
bool may_overlap(const Region& a, const Region& b);

// Whether two elements of one region share bytes. Exact within the same bound.
bool may_overlap_itself(const Region& region);

}  // namespace brrr
