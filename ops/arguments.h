// How public functions begin and end: checks of their arguments, and the call that they dispatch.
#pragma once

#include <initializer_list>

#include <brrr/dispatch/dispatch.h>
#include <brrr/tensor/tensor.h>
#include <brrr/tensor/tensor_impl.h>
#include <brrr/tensor/thread_context.h>

namespace brrr {

// The scope of a composite, whose tensors must be defined.
struct Composite : CompositeScope {
  template <class... Tensors>
  explicit Composite(const char* name, const Tensors&... tensors) : CompositeScope(name) {
    require_defined(name, tensors...);
  }
};

// Whether autograd records calls on x.
inline bool is_recorded(const Tensor& x) {
  return TensorImpl::of(x)->word.keys() & bit(Key::autograd) & ~thread_context.excluded_keys;
}

// The place from the start of dimension `dim` that an index names, which counts from the end where
// it is negative; throws where there is none.
std::int64_t wrap_index(const char* op, const Tensor& x, int dim, std::int64_t index);

// The result of a call that makes or computes in `dtype`.
template <class... Tensors>
Tensor dispatch_op(Op op, DType dtype, std::initializer_list<Attr> attrs,
                   const Tensors&... operands) {
  const Tensor* inputs[] = {&operands...};
  Call call(op, inputs, sizeof...(operands));
  call.dtype = dtype;
  for (const Attr attr : attrs) call.add_attr(attr);
  return dispatch(call);
}

}  // namespace brrr
