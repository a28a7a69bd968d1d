#include "brrr/ops/jit/geometry.h"

#include <bit>

namespace brrr::jit {

void fill(Geometry& geometry, const StridedSpace& space, int width) {
  std::int64_t count = 1;
  for (int d = 0; d < space.rank; ++d) {
    const bool inner = d == space.rank - 1;
    const std::int64_t size = inner ? space.size[d] / width : space.size[d];
    count *= size;
    geometry.size[d] = size;
    for (int k = 0; k < space.operands; ++k) {
      geometry.stride[k][d] = inner ? space.stride[k][d] * width : space.stride[k][d];
    }
    if (size > 0 && size <= INT32_MAX) {
      // n / size is (n * multiplier / 2^32 + n) >> shift for n below 2^31.
      const std::uint32_t shift =
          static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(size - 1)));
      geometry.shift[d] = shift;
      geometry.multiplier[d] = static_cast<std::uint32_t>(
          ((std::uint64_t{1} << 32) *
           ((std::uint64_t{1} << shift) - static_cast<std::uint64_t>(size))) /
              static_cast<std::uint64_t>(size) +
          1);
    }
  }
  geometry.count = count;
}

}  // namespace brrr::jit
