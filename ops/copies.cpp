// Copies: between types, layouts and devices, to the host, and in place.

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/shapes.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/runtime.h"

namespace brrr {
namespace {

void require_values(const char* op, const Tensor& x) {
  require_defined(op, x);
  refuse_while_tracing(op, "it reads values, which a trace does not have");
  if (x.is_meta())
    fail("[{}] expected a tensor with values, got {} without memory (meta)", op, x.describe());
}

template <class T>
T only_value(const char* op, const Tensor& x) {
  require_values(op, x);
  if (x.numel() != 1) fail("[{}] expected a tensor of one element, got {}", op, x.describe());
  const OpScope scope(op);
  const Tensor value = contiguous(cast(x, dtype_of<T>));
  T result;
  copy_to_host(&result, value);
  return result;
}

}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  require_defined("cast", x);
  return x.dtype() == dtype ? x : dispatch_op(Op::cast, dtype, {}, x);
}

Tensor clone(const Tensor& x) {
  require_defined("clone", x);
  return dispatch_op(Op::copy, x.dtype(), {}, x);
}

Tensor contiguous(const Tensor& x) {
  require_defined("contiguous", x);
  return x.is_contiguous() ? x : clone(x);
}

Tensor to(const Tensor& x, DType dtype) {
  require_defined("to", x);
  return cast(x, dtype);
}

Tensor to(const Tensor& x, Device device, Async async) {
  require_defined("to", x);
  require_device(device, "to");
  if (x.device() == device) return x;
  refuse_while_tracing("to", "it moves values between devices, which a trace cannot hold");
  if (is_recorded(x)) {
    fail(
        "[to] expected a tensor that no gradient is recorded for, got {}: gradients do not cross "
        "devices; detach it, or move it under no_grad",
        x.describe());
  }
  const OpScope scope("to");
  if (x.is_meta()) return make_meta_tensor(x.dtype(), x.shape(), device);
  const Tensor source = contiguous(x);
  const bool pinned = async == Async::yes && device.is_cpu();
  const Tensor result =
      pinned ? make_pinned_tensor(x.dtype(), x.shape()) : make_tensor(x.dtype(), x.shape(), device);
  copy_bytes(result, source, async);
  return result;
}

Tensor to(const Tensor& x, Device device, DType dtype, Async async) {
  require_defined("to", x);
  // Converts on the side that makes the copy smaller; after an asynchronous copy the host cannot
  // convert.
  const bool here = size_of(dtype) < size_of(x.dtype()) || (async == Async::yes && device.is_cpu());
  return here ? to(cast(x, dtype), device, async) : cast(to(x, device, async), dtype);
}

Tensor pin_memory(const Tensor& x) {
  require_values("pin_memory", x);
  if (!x.device().is_cpu()) fail("[pin_memory] expected a tensor on the CPU, got {}", x.describe());
  if (is_pinned(x)) return x;
  const OpScope scope("pin_memory");
  const Tensor result = make_pinned_tensor(x.dtype(), x.shape());
  copy_bytes(result, contiguous(x));
  return result;
}

template <class T>
T item(const Tensor& x) {
  return only_value<T>("item", x);
}
double item(const Tensor& x) { return only_value<double>("item", x); }

template <class T>
std::vector<T> to_vector(const Tensor& x) {
  require_values("to_vector", x);
  const OpScope scope("to_vector");
  const Tensor values = contiguous(cast(x, dtype_of<T>));
  if constexpr (std::is_same_v<T, bool>) {
    const auto bytes = std::make_unique<bool[]>(static_cast<std::size_t>(values.numel()));
    copy_to_host(bytes.get(), values);
    return std::vector<bool>(bytes.get(), bytes.get() + values.numel());
  } else {
    std::vector<T> result(static_cast<std::size_t>(values.numel()));
    copy_to_host(result.data(), values);
    return result;
  }
}

#define X(e, type, name)                   \
  template type item<type>(const Tensor&); \
  template std::vector<type> to_vector<type>(const Tensor&);
BRRR_DTYPES(X)
#undef X

namespace infer {

void copy(const Call& call, OutputSpec* out) { out[0] = like(call.input(0), call.dtype); }

}  // namespace infer

Tensor& copy_(Tensor& destination, const Tensor& source) {
  const Composite scope("copy_", destination, source);
  if (destination.device() != source.device())
    return copy_(destination, to(source, destination.device()));
  const Dims shape = broadcast_shapes("copy_", destination.shape(), source.shape());
  if (!std::ranges::equal(shape, destination.shape())) {
    fail("[copy_] expected a source that broadcasts to {}, got {}", destination.describe(),
         source.describe());
  }
  const Tensor* inputs[] = {&source};
  Call call(Op::copy, inputs, 1);
  call.dtype = destination.dtype();
  call.in_place = true;
  Tensor output = destination;
  dispatch(call, &output);
  return destination;
}

Tensor& fill_(Tensor& x, Scalar value) {
  const Composite scope("fill_", x);
  return copy_(x, full({}, value, {x.dtype(), x.device()}));
}
Tensor& zero_(Tensor& x) {
  const CompositeScope scope("zero_");
  return fill_(x, 0);
}

}  // namespace brrr
