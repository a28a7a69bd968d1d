// Copies of factors of matrix products, contiguous along the summed dimension. Fused graphs on CUDA
// insert them before some TF32 products (graph/copy_factors.cpp).
#pragma once

#include <cstdint>

#include <brrr/dispatch/call.h>
#include <brrr/tensor/device.h>
#include <brrr/tensor/dims.h>
#include <brrr/tensor/dtype.h>

namespace brrr {

// The call that stores its operand in row-major layout.
Call factor_copy(DType dtype);

// A matrix as a factor of a product.
struct FactorLayout {
  Dims shape, strides;
};
// Which factor of the product of a [m, k] and b [k, n] is worth copying, because the product then
// saves more time than the copy takes: 0 or 1, or -1 for neither.
int factor_worth_copying(const FactorLayout& a, const FactorLayout& b, DType dtype, Device device);

}  // namespace brrr
