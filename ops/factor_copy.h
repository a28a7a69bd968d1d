// A factor of a matrix product, copied so that the elements that a result sums are adjacent: what
// fused graphs on CUDA have in front of some TF32 products (graph/copy_factors.cpp).
#pragma once

#include <cstdint>

#include <brrr/dispatch/call.h>
#include <brrr/tensor/device.h>
#include <brrr/tensor/dims.h>
#include <brrr/tensor/dtype.h>

namespace brrr {

// copy = factor_copy(x): the column-major matrix x in row-major layout.
inline constexpr Op kFactorCopyOp = Op::factor_copy;

// A matrix as a factor of a product.
struct FactorLayout {
  Dims shape, strides;
};
// The factor of the product of a [m, k] and b [k, n] whose copy along k is made up for by a faster
// product: 0 or 1, or -1 if there is none.
int factor_worth_copying(const FactorLayout& a, const FactorLayout& b, DType dtype, Device device);

}  // namespace brrr
