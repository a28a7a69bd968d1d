// Runs calls. `dispatch` picks the highest key and passes the call to the function of that key,
// which does its part and passes the call to the next lower key with `dispatch_below`.
#pragma once

#include <brrr/dispatch/call.h>
#include <brrr/dispatch/keys.h>
#include <brrr/dispatch/op_info.h>

namespace brrr {

// `outputs` are n_outputs handles. An undefined one is allocated; a defined one is written to
// (in-place ops, planned programs) and must have the shape that the op's rule gives.
using KeyFn = void (*)(Call& call, Tensor* outputs, std::uint32_t keys);

namespace detail {
extern KeyFn key_functions[kKeys];
[[noreturn]] void no_single_backend(const Call& call, std::uint32_t keys);
}  // namespace detail

// Installs the function of a key: how autograd/ and graph/, which dispatch/ must not include, hook
// in at load time.
void set_key_function(Key key, KeyFn function);

inline std::uint32_t keys_of(const Call& call) {
  std::uint32_t bits = 0;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i)
    bits |= TensorImpl::of(*call.inputs[i])->word.bits;
  std::uint32_t keys = bits >> TensorWord::kKeyShift;
  if (call.n_inputs == 0) keys = backend_key(call.device, false);
  return (keys | thread_context.included_keys | global_keys.load(std::memory_order_relaxed)) &
         ~thread_context.excluded_keys;
}

inline void dispatch_with(Call& call, Tensor* outputs, std::uint32_t keys) {
  const int top = 31 - __builtin_clz(keys | 1u);
  detail::key_functions[top](call, outputs, keys);
}

inline void dispatch(Call& call, Tensor* outputs) {
  std::uint32_t keys = keys_of(call);
  if (call.in_place)
    keys |= TensorImpl::of(outputs[0])->word.keys() & ~thread_context.excluded_keys;
  dispatch_with(call, outputs, keys);
}
inline void dispatch_below(Key key, Call& call, Tensor* outputs, std::uint32_t keys) {
  dispatch_with(call, outputs, keys & (bit(key) - 1));
}

// The first steps of a backend: throw unless the inputs are on one device; allocate undefined
// outputs by the op's shape rule, and check outputs that are given.
void require_one_device(const Call& call);
using MakeTensor = Tensor (*)(DType dtype, std::span<const std::int64_t> shape, Device device);
void prepare_outputs(const Call& call, Tensor* outputs, MakeTensor make);

// For code that runs kernels without the dispatcher: whether calls of this thread are observed, and
// what observers see before and after a call.
bool observed();
void observe_before(const Call& call);
void observe_after(const Call& call, std::span<const Tensor> outputs);

// For ops of one output.
inline Tensor dispatch(Call& call) {
  Tensor output;
  dispatch(call, &output);
  return output;
}

}  // namespace brrr
