// Owns the arithmetic on strides that turns tensors' layouts into kernel arguments.
#include "brrr/ops/jit/geometry.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

namespace brrr::jit {

void Space::swap_dims(int a, int b) {
  std::swap(size[a], size[b]);
  for (int k = 0; k < operands; ++k) std::swap(stride[k][a], stride[k][b]);
}

void Space::move_last(int dim) {
  for (int d = dim; d + 1 < rank; ++d) swap_dims(d, d + 1);
}

void add_operand(Space& space, std::span<const std::int64_t> shape,
                 std::span<const std::int64_t> strides) {
  std::int64_t* row = space.stride[space.operands++];
  const int missing = space.rank - static_cast<int>(shape.size());
  for (int d = 0; d < space.rank; ++d) {
    row[d] = d < missing || shape[d - missing] == 1 ? 0 : strides[d - missing];
  }
}

void sort_dims(Space& space) {
  const auto before = [&space](int a, int b) {
    for (int k = 0; k < space.operands; ++k) {
      const std::int64_t x = std::abs(space.stride[k][a]), y = std::abs(space.stride[k][b]);
      if (x != y) return x > y;
    }
    return false;
  };
  for (int i = 1; i < space.rank; ++i) {
    for (int d = i; d > 0 && before(d, d - 1); --d) space.swap_dims(d, d - 1);
  }
}

void coalesce(Space& space) {
  int last = -1;  // of the dimensions that stay
  for (int d = 0; d < space.rank; ++d) {
    if (space.size[d] == 1) continue;
    bool joins = last >= 0;
    for (int k = 0; joins && k < space.operands; ++k) {
      joins = space.stride[k][last] == space.stride[k][d] * space.size[d];
    }
    if (joins) {
      space.size[last] *= space.size[d];
    } else {
      ++last;
      space.size[last] = space.size[d];
    }
    for (int k = 0; k < space.operands; ++k) space.stride[k][last] = space.stride[k][d];
  }
  if (last < 0) {
    last = 0;
    space.size[0] = 1;
    for (int k = 0; k < space.operands; ++k) space.stride[k][0] = 1;
  }
  space.rank = last + 1;
}

bool is_narrow(const Space& space) {
  constexpr std::int64_t kMost = INT32_MAX;
  std::int64_t count = 1;
  for (int d = 0; d < space.rank; ++d) {
    if (space.size[d] > kMost || (count *= space.size[d]) > kMost) return false;
  }
  for (int k = 0; k < space.operands; ++k) {
    std::int64_t reach = 0;
    for (int d = 0; d < space.rank; ++d) {
      const std::int64_t stride = std::abs(space.stride[k][d]);
      if (stride > kMost) return false;
      reach += (space.size[d] - 1) * stride;
    }
    if (reach > kMost) return false;
  }
  return true;
}

int vector_width(const Space& space, const void* const* data, const std::uint8_t* element_sizes,
                 int most) {
  const int inner = space.rank - 1;
  std::uint64_t bits =
      static_cast<std::uint64_t>(most) | static_cast<std::uint64_t>(space.size[inner]);
  for (int k = 0; k < space.operands; ++k) {
    if (space.stride[k][inner] == 0 || element_sizes[k] == 0) continue;
    if (space.stride[k][inner] != 1) return 1;
    for (int d = 0; d < inner; ++d) bits |= static_cast<std::uint64_t>(space.stride[k][d]);
    bits |= reinterpret_cast<std::uintptr_t>(data[k]) / element_sizes[k];
  }
  return static_cast<int>(bits & (~bits + 1));
}

void fill(Geometry& geometry, const Space& space, int width) {
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
