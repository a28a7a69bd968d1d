#include "brrr/tensor/overlap.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace brrr {
namespace {

bool has_elements(const Region& region) {
  return std::ranges::find(region.shape, 0) == region.shape.end();
}

}  // namespace

Region region_of(const Tensor& tensor) {
  return {tensor.shape(), tensor.strides(), tensor.storage_offset(),
          static_cast<std::int64_t>(size_of(tensor.dtype()))};
}

Extent extent_of(const Region& region) {
  if (!has_elements(region)) return {};
  Extent extent{region.offset * region.element, region.offset * region.element};
  for (std::size_t d = 0; d < region.shape.size(); ++d) {
    const std::int64_t reach = (region.shape[d] - 1) * region.strides[d] * region.element;
    (reach < 0 ? extent.low : extent.high) += reach;
  }
  extent.high += region.element;
  return extent;
}

bool may_overlap(const Region& a, const Region& b) {
  if (!has_elements(a) || !has_elements(b)) return false;
  const Extent x = extent_of(a), y = extent_of(b);
  if (x.high <= y.low || y.high <= x.low) return false;
  // Every address of either is its first one plus a multiple of this.
  std::int64_t common = 0;
  for (const Region* region : {&a, &b}) {
    for (std::size_t d = 0; d < region->shape.size(); ++d) {
      if (region->shape[d] != 1) common = std::gcd(common, region->strides[d] * region->element);
    }
  }
  if (common == 0) return true;
  const auto apart = [common](std::int64_t distance) {
    return (distance % common + common) % common;
  };
  const std::int64_t start_a = a.offset * a.element, start_b = b.offset * b.element;
  return apart(start_b - start_a) < a.element || apart(start_a - start_b) < b.element;
}

bool may_overlap_itself(const Region& region) {
  if (!has_elements(region)) return false;
  std::pair<std::int64_t, std::int64_t> steps[kMaxDims];  // stride, size
  int n = 0;
  for (std::size_t d = 0; d < region.shape.size(); ++d) {
    if (region.shape[d] != 1) steps[n++] = {std::abs(region.strides[d]), region.shape[d]};
  }
  std::sort(steps, steps + n);
  std::int64_t reach = 0;
  for (int i = 0; i < n; ++i) {
    if (steps[i].first <= reach) return true;
    reach += steps[i].first * (steps[i].second - 1);
  }
  return false;
}

}  // namespace brrr
