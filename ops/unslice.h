// unslice, by fill and copy kernels of either device: zeros, with the input copied to its
// positions.
#pragma once

#include <brrr/ops/kernels.h>

namespace brrr {

inline void unslice_by(KernelFn full, KernelFn copy, const Call& call, Tensor& out) {
  const Tensor& x = call.input(0);
  Call zero(Op::full, nullptr, 0);
  zero.dtype = x.dtype();
  zero.add_attr(0);
  full(zero, &out);
  if (x.numel() == 0) return;
  const int dim = static_cast<int>(call.attrs[0].i());
  Tensor part = views::places(out, dim, call.attrs[1].i(), x.shape()[dim], call.attrs[3].i());
  copy(call, &part);
}

}  // namespace brrr
