// Copies of factors of matrix products, in layouts that tensor cores read. Fused graphs on CUDA
// insert them before some products (graph/copy_factors.cpp).
#pragma once

#include <array>
#include <cstdint>

#include <brrr/dispatch/call.h>
#include <brrr/tensor/device.h>
#include <brrr/tensor/dims.h>
#include <brrr/tensor/dtype.h>

namespace brrr {

// The call that stores its operand in row-major layout.
Call factor_copy(DType dtype);

// A factor of a product: matrices in the last two dimensions.
struct FactorLayout {
  Dims shape, strides;
  std::int64_t begin = 0;  // in bytes, counted from a multiple of 16

  // The dimension with adjacent elements, the last one or the one before it; -1: neither.
  int adjacent() const;
  // The largest power of two up to 16 that divides the bytes from one line of adjacent elements to
  // any other, and where the first begins.
  std::int64_t alignment(DType dtype) const;
};

// How a copy of a factor is laid out: as the factor, with lines that begin at multiples of 16
// bytes; or along the factor's other dimension.
enum class FactorCopy : std::uint8_t { none, padded, transposed };
// Of both factors of a product of a [m, k] and b [k, n].
typedef std::array<FactorCopy, 2> FactorCopies;

// A copy of one factor of a TF32 product that saves more time than it takes.
FactorCopies copies_for_tf32(const FactorLayout& a, const FactorLayout& b, DType dtype,
                             Device device);

// The copies by which generated tiles can compute a product whose factors have lines that begin
// anywhere, and that no other generated kernel computes.
FactorCopies copies_for_tiles(const FactorLayout& a, const FactorLayout& b, DType dtype,
                              Device device);

}  // namespace brrr
