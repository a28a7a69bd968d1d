#include "brrr/tensor/strided_space.h"

#include <cstdlib>
#include <utility>

#include "brrr/tensor/tensor_impl.h"

namespace brrr {
namespace {

void swap_dims(StridedSpace& space, int a, int b) {
  std::swap(space.size[a], space.size[b]);
  for (int k = 0; k < space.operands; ++k) std::swap(space.stride[k][a], space.stride[k][b]);
}

}  // namespace

StridedSpace space_of_dims(std::span<const std::int64_t> shape,
                           std::span<const std::int64_t> strides, int first, int last) {
  StridedSpace space;
  space.operands = 1;
  for (int d = first; d < last; ++d) {
    space.stride[0][space.rank] = strides[d];
    space.add_dim(shape[d]);
  }
  coalesce(space);
  return space;
}

void split_dims(StridedSpace& kept, StridedSpace& reduced, const Tensor& input,
                const Tensor& output, std::uint64_t mask) {
  kept.operands = 2;
  reduced.operands = 1;
  const TensorImpl &in = *input.impl(), &out = *output.impl();
  const int rank = in.word.rank();
  const bool keeps_dims = out.word.rank() == rank;
  for (int d = 0, of_output = 0; d < rank; ++d) {
    const bool is_reduced = mask >> d & 1;
    StridedSpace& space = is_reduced ? reduced : kept;
    space.stride[0][space.rank] = in.strides[d];
    if (!is_reduced) space.stride[1][space.rank] = out.strides[of_output];
    if (!is_reduced || keeps_dims) ++of_output;
    space.add_dim(in.dims[d]);
  }
}

void sort_dims(StridedSpace& space) {
  const auto before = [&space](int a, int b) {
    for (int k = 0; k < space.operands; ++k) {
      const std::int64_t x = std::abs(space.stride[k][a]), y = std::abs(space.stride[k][b]);
      if (x != y) return x > y;
    }
    return false;
  };
  for (int i = 1; i < space.rank; ++i) {
    for (int d = i; d > 0 && before(d, d - 1); --d) swap_dims(space, d, d - 1);
  }
}

void coalesce(StridedSpace& space) {
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

void move_dim(StridedSpace& space, int dim, int to) {
  for (; dim < to; ++dim) swap_dims(space, dim, dim + 1);
  for (; dim > to; --dim) swap_dims(space, dim, dim - 1);
}

bool is_narrow(const StridedSpace& space) {
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

bool is_contiguous(const StridedSpace& space, int operand) {
  std::int64_t expected = 1;
  for (int d = space.rank - 1; d >= 0; --d) {
    if (space.stride[operand][d] != expected) return false;
    expected *= space.size[d];
  }
  return true;
}

int vector_width(const StridedSpace& space, const void* const* data,
                 const std::uint8_t* element_sizes, int most) {
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

}  // namespace brrr
