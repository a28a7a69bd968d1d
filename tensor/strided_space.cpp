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

// Appends a dimension in which operand k has the stride stride_of(k), or joins it to the last one
// if all operands pass through both as one. A dimension of size 1 is dropped.
template <class StrideOf>
inline void append_dim(StridedSpace& space, int operands, std::int64_t size, StrideOf stride_of) {
  if (size == 1) return;
  int last = space.rank - 1;
  bool joins = last >= 0;
  for (int k = 0; joins && k < operands; ++k) joins = space.stride[k][last] == stride_of(k) * size;
  if (joins) {
    space.size[last] *= size;
  } else {
    space.add_dim(size);
    ++last;
  }
  for (int k = 0; k < operands; ++k) space.stride[k][last] = stride_of(k);
}

// A space that lost all its dimensions has one element.
void require_dim(StridedSpace& space) {
  if (space.rank > 0) return;
  space.add_dim(1);
  for (int k = 0; k < space.operands; ++k) space.stride[k][0] = 1;
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
  const TensorImpl &in = *TensorImpl::of(input), &out = *TensorImpl::of(output);
  const int rank = in.word.rank();
  const bool keeps_dims = out.word.rank() == rank;
  for (int d = 0, of_output = 0; d < rank; ++d) {
    if (mask >> d & 1) {
      append_dim(reduced, 1, in.dims[d], [&](int) { return in.strides[d]; });
      of_output += keeps_dims;
    } else {
      append_dim(kept, 2, in.dims[d],
                 [&](int k) { return k == 0 ? in.strides[d] : out.strides[of_output]; });
      ++of_output;
    }
  }
  require_dim(kept);
  require_dim(reduced);
}

StridedSpace choose_dims(const StridedSpace& space, std::uint32_t mask) {
  StridedSpace chosen;
  chosen.operands = space.operands;
  for (int d = 0; d < space.rank; ++d) {
    if (!(mask >> d & 1)) continue;
    for (int k = 0; k < space.operands; ++k) chosen.stride[k][chosen.rank] = space.stride[k][d];
    chosen.add_dim(space.size[d]);
  }
  return chosen;
}

void sort_dims(StridedSpace& space) {
  const auto before = [&space](int a, int b) {
    for (int k = 0; k < space.operands; ++k) {
      const std::int64_t x = std::abs(space.stride[k][a]), y = std::abs(space.stride[k][b]);
      // An operand that is broadcast along either has no preference.
      if (x != y && x != 0 && y != 0) return x > y;
    }
    return false;
  };
  for (int i = 1; i < space.rank; ++i) {
    for (int d = i; d > 0 && before(d, d - 1); --d) swap_dims(space, d, d - 1);
  }
}

void coalesce(StridedSpace& space) {
  const int rank = space.rank;
  space.rank = 0;
  for (int d = 0; d < rank; ++d) {
    append_dim(space, space.operands, space.size[d], [&](int k) { return space.stride[k][d]; });
  }
  require_dim(space);
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
