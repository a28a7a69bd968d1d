// Contiguous copies of operands and results, for kernels that do not take strides.
#pragma once

#include <brrr/ops/kernels.h>
#include <brrr/tensor/tensor.h>
#include <brrr/tensor/tensor_impl.h>

namespace brrr::on_cuda {

inline Tensor contiguous_copy(const Tensor& x) {
  const Tensor* inputs[] = {&x};
  Call call(Op::copy, inputs, 1);
  call.dtype = x.dtype();
  Tensor result = make_tensor(x.dtype(), x.shape(), x.device());
  copy(call, &result);
  return result;
}

inline Tensor contiguous_here(const Tensor& x) {
  return x.is_contiguous() ? x : contiguous_copy(x);
}

// Converts, and writes with the strides of `to`.
inline void copy_into(Tensor& to, const Tensor& from) {
  const Tensor* inputs[] = {&from};
  Call call(Op::copy, inputs, 1);
  call.dtype = to.dtype();
  call.in_place = true;
  copy(call, &to);
}

// Calls `f` with `output`, or with a contiguous tensor that is then copied into it.
template <class F>
void write_contiguous(Tensor& output, F&& f) {
  if (output.is_contiguous()) [[likely]] {
    f(output);
    return;
  }
  Tensor result = make_tensor(output.dtype(), output.shape(), output.device());
  f(result);
  copy_into(output, result);
}

}  // namespace brrr::on_cuda
