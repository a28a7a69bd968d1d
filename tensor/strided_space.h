// The index spaces that kernels, copies and file formats walk through: the dimensions of a shape
// and the strides of every operand in them, brought to their simplest form. One type for the host
// and for both generators of kernels, so that layouts are simplified by the same rules everywhere.
// Nothing allocates.
#pragma once

#include <cstdint>
#include <span>

#include <brrr/tensor/tensor.h>

namespace brrr {

#define BRRR_SCALAR_FN inline
#define BRRR_ONCE_A_TILE
#include <brrr/tensor/strided_space.inl>
#undef BRRR_SCALAR_FN
#undef BRRR_ONCE_A_TILE

static_assert(sizeof(StridedSpace::size) == core::kMaxDims * sizeof(std::int64_t));

inline void add_dims(StridedSpace& space, std::span<const std::int64_t> shape) {
  for (const std::int64_t size : shape) space.add_dim(size);
}
// A space of these dimensions, without operands.
inline StridedSpace space_of(std::span<const std::int64_t> shape) {
  StridedSpace space;
  add_dims(space, shape);
  return space;
}
// Dimensions [first, last) of one operand, in their simplest form.
StridedSpace space_of_dims(std::span<const std::int64_t> shape,
                           std::span<const std::int64_t> strides, int first, int last);
// Adds an operand that is broadcast to the space's dimensions, aligned at the right.
inline void add_operand(StridedSpace& space, std::span<const std::int64_t> shape,
                        std::span<const std::int64_t> strides) {
  std::int64_t* row = space.stride[space.operands++];
  const int missing = space.rank - static_cast<int>(shape.size());
  for (int d = 0; d < space.rank; ++d) {
    row[d] = d < missing || shape[d - missing] == 1 ? 0 : strides[d - missing];
  }
}
inline void add_operand(StridedSpace& space, const Tensor& tensor) {
  add_operand(space, tensor.shape(), tensor.strides());
}

// Splits the dimensions of a reduction between two empty spaces and coalesces both: `reduced` gets
// those in `mask`, with the input as its operand, `kept` the rest, with input and output. The
// output has the kept dimensions only, or all of them with 1 in place of the reduced ones.
void split_dims(StridedSpace& kept, StridedSpace& reduced, const Tensor& input,
                const Tensor& output, std::uint64_t mask);

// The dimensions of a space that have their bit in `mask`, with all operands.
StridedSpace choose_dims(const StridedSpace& space, std::uint32_t mask);

// Orders dimensions by the first operand's strides, largest first; the other operands' strides
// break ties.
void sort_dims(StridedSpace& space);
// Drops dimensions of size 1 and joins those that all operands pass through as one. At least one is
// left. The order of elements stays.
void coalesce(StridedSpace& space);
// Moves a dimension to position `to`; the others keep their order.
void move_dim(StridedSpace& space, int dim, int to);

// Whether counts and offsets stay below 2^31.
bool is_narrow(const StridedSpace& space);
// Whether an operand is contiguous in the order of the space.
bool is_contiguous(const StridedSpace& space, int operand);
// The widest power of two up to `most` by which every operand that has stride 1 in the last
// dimension can be read in vectors: sizes, strides and addresses are multiples of it. 1 when an
// operand has another stride there. Operands whose elements have size 0 do not count.
int vector_width(const StridedSpace& space, const void* const* data,
                 const std::uint8_t* element_sizes, int most);

}  // namespace brrr
