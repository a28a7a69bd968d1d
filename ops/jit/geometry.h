// The spaces that kernels walk through: dimensions and the strides of every operand, brought to
// their simplest form, and then as the argument that kernels take. No CUDA here; nothing allocates.
#pragma once

#include <cstdint>
#include <span>

namespace brrr::jit {

inline constexpr int kMaxRank = 8;
inline constexpr int kMaxOperands = 16;

struct Space {
  int rank = 0;
  int operands = 0;
  std::int64_t size[kMaxRank];
  std::int64_t stride[kMaxOperands][kMaxRank];  // in elements; 0 where an operand is broadcast

  std::int64_t count() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= size[d];
    return n;
  }
  void add_dim(std::int64_t s) { size[rank++] = s; }
  void swap_dims(int a, int b);
  void move_last(int dim);
};

// An operand of `shape` and `strides` read as the space's dimensions, aligned at the right.
void add_operand(Space& space, std::span<const std::int64_t> shape,
                 std::span<const std::int64_t> strides);

// Orders dimensions by the first operand's strides, largest first; the other operands' strides
// break ties.
void sort_dims(Space& space);
// Drops dimensions of size 1 and joins those that all operands pass through as one. At least one is
// left.
void coalesce(Space& space);
// Counts and offsets stay below 2^31.
bool is_narrow(const Space& space);

// The widest power of two up to `most` by which every operand that has stride 1 in the last
// dimension can be read in vectors: sizes, strides and addresses are multiples of it. 1 when an
// operand has another stride there. Operands whose elements have size 0 have no say.
int vector_width(const Space& space, const void* const* data, const std::uint8_t* element_sizes,
                 int most);

// As prelude.inl's Geometry<N>, which is this with as many rows of strides as it has operands.
struct Geometry {
  std::int64_t count;
  std::int64_t size[kMaxRank];
  std::uint32_t multiplier[kMaxRank];
  std::uint32_t shift[kMaxRank];
  std::int64_t stride[kMaxOperands][kMaxRank];
};

// Only the entries that kernels of this rank read are written. `width` elements of the last
// dimension become one.
void fill(Geometry& geometry, const Space& space, int width);

}  // namespace brrr::jit
