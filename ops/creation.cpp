// Functions that create tensors: constants, progressions, one_hot, values from the host.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/scalar_attr.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/runtime.h"

namespace brrr {
namespace {

// The bits of a Device: Clang calls libatomic, which is not linked, for a type aligned to one byte.
constinit std::atomic<std::uint16_t> default_everywhere{std::bit_cast<std::uint16_t>(Device{})};

Tensor create(Call& call, const Options& options) {
  call.dtype = options.dtype;
  call.device = options.device;
  if (!options.device.is_cpu()) require_device(options.device, op_info(call.op).name);
  return dispatch(call);
}

Options like(const Tensor& x) { return {x.dtype(), x.device()}; }

}  // namespace

Device default_device() {
  return thread_context.default_device
             ? *thread_context.default_device
             : std::bit_cast<Device>(default_everywhere.load(std::memory_order_relaxed));
}

void set_default_device(Device device) {
  require_device(device, "set_default_device");
  default_everywhere.store(std::bit_cast<std::uint16_t>(device), std::memory_order_relaxed);
}

DeviceGuard::DeviceGuard(Device device) : before_(thread_context.default_device) {
  require_device(device, "DeviceGuard");
  thread_context.default_device = device;
}
DeviceGuard::~DeviceGuard() { thread_context.default_device = before_; }

namespace infer {

void empty(const Call& call, OutputSpec* out) {
  out[0] = {call.dtype, call.device, call.shape_from(0)};
}

void full(const Call& call, OutputSpec* out) {
  out[0] = {call.dtype, call.device, call.shape_from(1)};
}

void arange(const Call& call, OutputSpec* out) {
  out[0] = {call.dtype, call.device, Dims{call.attrs[2].i()}};
}

}  // namespace infer

Tensor empty(const Dims& shape, Options options) {
  const std::uint32_t asked =
      thread_context.included_keys | global_keys.load(std::memory_order_relaxed);
  if (asked == 0 && options.device.is_cpu()) [[likely]] {
    const OpScope scope("empty");
    return make_tensor(options.dtype, shape, options.device);
  }
  Call call(Op::empty, nullptr, 0);
  call.add_shape(shape);
  return create(call, options);
}

Tensor full(const Dims& shape, Scalar value, Options options) {
  Call call(Op::full, nullptr, 0);
  require_representable("full", options.dtype, value);
  call.add_attr(scalar_attr("full", options.dtype, value));
  call.add_shape(shape);
  return create(call, options);
}

Tensor zeros(const Dims& shape, Options options) {
  const CompositeScope scope("zeros");
  return full(shape, 0, options);
}
Tensor ones(const Dims& shape, Options options) {
  const CompositeScope scope("ones");
  return full(shape, 1, options);
}

Tensor meta(const Dims& shape, Options options) {
  const OpScope scope("meta");
  return make_meta_tensor(options.dtype, shape, options.device);
}

// If x is a meta tensor, the result is one; if x is a placeholder of a trace, so is the result.
Tensor full_like(const Tensor& x, Scalar value) {
  const Composite scope("full_like", x);
  if (x.without_values()) return meta(x.shape(), like(x));
  return full(x.shape(), value, like(x));
}
Tensor empty_like(const Tensor& x) {
  const Composite scope("empty_like", x);
  if (x.without_values()) return meta(x.shape(), like(x));
  return empty(x.shape(), like(x));
}
Tensor zeros_like(const Tensor& x) {
  const CompositeScope scope("zeros_like");
  return full_like(x, 0);
}
Tensor ones_like(const Tensor& x) {
  const CompositeScope scope("ones_like");
  return full_like(x, 1);
}

Tensor arange(Scalar start, Scalar end, Scalar step, RangeOptions options) {
  const bool integers = start.category() != Category::floating &&
                        end.category() != Category::floating &&
                        step.category() != Category::floating;
  const DType type = options.dtype.value_or(integers ? i64 : f32);
  if (type == boolean) fail("[arange] expected a number type, got bool");
  std::int64_t length = 0;
  bool bad;
  if (integers) {
    const __int128 span = static_cast<__int128>(end.to_int()) - start.to_int(), by = step.to_int();
    bad = by == 0 || (span != 0 && (span > 0) != (by > 0)) || span / by >= std::int64_t{1} << 62;
    if (!bad) length = static_cast<std::int64_t>((span + by - (by > 0 ? 1 : -1)) / by);
  } else {
    const double count = (end.to_double() - start.to_double()) / step.to_double();
    bad = !(count >= 0 && count < 0x1p62 && std::isfinite(step.to_double()));
    if (!bad) length = static_cast<std::int64_t>(std::ceil(count));
  }
  if (bad) {
    fail(
        "[arange] expected a step that leads from start to end in less than 2^62, got {} to {} by "
        "{}",
        to_string(start), to_string(end), to_string(step));
  }
  Call call(Op::arange, nullptr, 0);
  call.add_attr(scalar_attr("arange", type, start));
  call.add_attr(scalar_attr("arange", type, step));
  call.add_attr(length);
  if (length > 0) {  // the last value too
    scalar_attr("arange", type,
                integers ? Scalar(start.to_int() + (length - 1) * step.to_int())
                         : start.to_double() + static_cast<double>(length - 1) * step.to_double());
  }
  return create(call, {type, options.device});
}

Tensor arange(Scalar start, Scalar end, RangeOptions options) {
  return arange(start, end, 1, options);
}

Tensor arange(Scalar end, RangeOptions options) { return arange(0, end, 1, options); }

Tensor linspace(double start, double end, std::int64_t steps, Options options) {
  const CompositeScope scope("linspace");
  if (steps < 0 || steps >= std::int64_t{1} << 53)
    fail("[linspace] expected 0 to 2^53 steps, got {}", steps);
  if (options.dtype == boolean) fail("[linspace] expected a number type, got bool");
  const bool whole = !is_floating(options.dtype);
  const DType wide = whole ? f64 : is_half(options.dtype) ? f32 : options.dtype;
  const Tensor t = arange(0.0, static_cast<double>(steps), {wide, options.device});
  const auto last = static_cast<double>(steps - 1);
  if (whole) {
    for (const double bound : {std::trunc(start), std::trunc(end)})
      require_representable("linspace", options.dtype, bound);
    // Divides last, so that rounding does not turn an integer into the one below.
    return cast(t * (end - start) / std::max(last, 1.0) + start, options.dtype);
  }
  const double step = steps > 1 ? (end - start) / last : 0.0;
  // From both ends towards the middle, so that both ends are exact.
  const Tensor forward = t * step + start;
  const Tensor backward = end - (last - t) * step;
  return cast(where(lt(t, static_cast<double>(steps) / 2), forward, backward), options.dtype);
}

Tensor eye(std::int64_t n, Options options) {
  const CompositeScope scope("eye");
  if (n < 0) fail("[eye] expected a size of at least 0, got {}", n);
  const Tensor row = arange(n, {i64, options.device});
  return cast(eq(unsqueeze(row, 1), row), options.dtype);
}

Tensor one_hot(const Tensor& index, std::int64_t classes) {
  const Composite scope("one_hot", index);
  if (category_of(index.dtype()) != Category::integer) {
    fail("[one_hot] expected integer classes, got {}", index.describe());
  }
  if (classes < 1) fail("[one_hot] expected at least 1 class, got {}", classes);
  Dims shape(index.shape());
  shape.push_back(classes);
  checked_numel(shape, sizeof(std::int64_t), "one_hot");
  const Tensor known = arange(classes, {i64, index.device()});
  return cast(eq(unsqueeze(checked(cast(index, i64), 0, classes - 1), -1), known), i64);
}

Tensor scalar_tensor(Scalar value, Options options) {
  const CompositeScope scope("scalar_tensor");
  return full({}, value, options);
}

template <class T>
Tensor tensor(std::span<const T> values, const Dims& shape, Device device) {
  constexpr DType dtype = dtype_of<T>;
  if (checked_numel(shape, sizeof(T), "tensor") != static_cast<std::int64_t>(values.size())) {
    fail("[tensor] expected as many values as {} has elements, got {}", to_string(shape),
         values.size());
  }
  require_device(device, "tensor");
  const OpScope scope("tensor");
  Tensor result = make_tensor(dtype, shape, device);
  copy_from_host(result, values.data());
  if (tracing() && thread_context.trace_listener) [[unlikely]]
    thread_context.trace_listener->on_host_values("tensor", result);
  return result;
}

template <class T>
Tensor tensor(const std::vector<T>& values, const Dims& shape, Device device) {
  if constexpr (std::is_same_v<T, bool>) {
    const auto copy = std::make_unique<bool[]>(values.size());
    std::copy(values.begin(), values.end(), copy.get());
    return tensor<bool>(std::span<const bool>(copy.get(), values.size()), shape, device);
  } else {
    return tensor<T>(std::span<const T>(values), shape, device);
  }
}

#define X(e, type, name)                                                    \
  template Tensor tensor<type>(std::span<const type>, const Dims&, Device); \
  template Tensor tensor<type>(const std::vector<type>&, const Dims&, Device);
BRRR_DTYPES(X)
#undef X

}  // namespace brrr
