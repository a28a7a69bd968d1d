// A strided space as kernels take it, one argument of fixed size, and how many blocks cover it. No
// CUDA here; nothing allocates.
#pragma once

#include <cstdint>

#include <brrr/tensor/strided_space.h>

namespace brrr::jit {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// As prelude.inl's Geometry<N>, which is this with as many rows of strides as it has operands.
struct Geometry {
  std::int64_t count;
  std::int64_t size[kMaxDims];
  std::uint32_t multiplier[kMaxDims];
  std::uint32_t shift[kMaxDims];
  std::int64_t stride[StridedSpace::kMaxOperands][kMaxDims];
};

// Only the entries that kernels of this rank read are written. `width` elements of the last
// dimension become one.
void fill(Geometry& geometry, const StridedSpace& space, int width);

}  // namespace brrr::jit
