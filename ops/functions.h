// The ops, as functions. Names follow PyTorch's. A name that ends in _ writes into its first
// argument. For a list of sizes or dimensions one number is accepted: sum(x, 1).
#pragma once

#include <concepts>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <brrr/dispatch/scalar.h>
#include <brrr/ops/literal.h>
#include <brrr/ops/operand.h>
#include <brrr/tensor/host_copy.h>
#include <brrr/tensor/tensor.h>

namespace brrr {

namespace core {
// Referenced here so that a static link includes ops/table.cpp, which no other symbol requires. g++
// drops the priority of a definition whose earlier declaration has none.
[[gnu::constructor(102)]] void fill_builtin_ops();
[[gnu::used]] inline void (*const linked_ops)() = fill_builtin_ops;
}  // namespace core

// --- Making tensors ---

// The device of tensors and modules that are created without one: that of the thread's innermost
// DeviceGuard, else the one set for all threads by set_default_device, else the CPU.
Device default_device();
void set_default_device(Device device);

class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  std::optional<Device> before_;
};

// zeros({2, 3}, {.dtype = bf16, .device = cuda()})
struct Options {
  DType dtype = f32;
  Device device = default_device();
};

// Each is also called with a dtype, zeros({2, 3}, i64), or with sizes alone, zeros(2, 3).
#define BRRR_CREATION(name)                                           \
  Tensor name(const Dims& shape, Options options = {});               \
  inline Tensor name(const Dims& shape, std::same_as<DType> auto t) { \
    return name(shape, Options{.dtype = t});                          \
  }                                                                   \
  template <core::Size... Sizes>                                      \
  requires(sizeof...(Sizes) > 1) Tensor name(Sizes... sizes) {        \
    return name(Dims{static_cast<std::int64_t>(sizes)...});           \
  }
BRRR_CREATION(empty)
BRRR_CREATION(zeros)
BRRR_CREATION(ones)
Tensor full(const Dims& shape, core::Scalar value, Options options = {});
inline Tensor full(const Dims& shape, core::Scalar value, std::same_as<DType> auto dtype) {
  return full(shape, value, Options{.dtype = dtype});
}
Tensor empty_like(const Tensor& x);
Tensor full_like(const Tensor& x, core::Scalar value);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
// A tensor with a shape and a type but no memory; ops on it compute shapes only.
Tensor meta(const Dims& shape, Options options = {});

// From start up to, not including, end. i64 if all three are integers, else f32, unless
// the options name a type: arange(0, 10, 2, {.dtype = f32}).
struct RangeOptions {
  std::optional<DType> dtype = {};
  Device device = default_device();
};
Tensor arange(core::Scalar start, core::Scalar end, core::Scalar step, RangeOptions options = {});
Tensor arange(core::Scalar start, core::Scalar end, RangeOptions options = {});
Tensor arange(core::Scalar end, RangeOptions options = {});
// Includes both ends. Integer types truncate the values, as `cast` does.
Tensor linspace(double start, double end, std::int64_t steps, Options options = {});
Tensor eye(std::int64_t n, Options options = {});
Tensor one_hot(const Tensor& index, std::int64_t classes);  // i64, with one more dimension

// A copy of x. Throws an Error if a value is outside of [low, high], or NaN.
Tensor checked(const Tensor& x, core::Scalar low, core::Scalar high);

// A 0-d tensor; or a tensor with the given values and shape, in row-major order.
Tensor scalar_tensor(core::Scalar value, Options options = {});
// tensor(3.0) is 0-d, f32 as lists are; tensor<std::int64_t>(3) names the type.
template <class T = float, class Number>
requires std::is_arithmetic_v<Number> Tensor tensor(Number value,
                                                    Device device = default_device()) {
  return scalar_tensor(value, {.dtype = core::dtype_of<T>, .device = device});
}
template <class T>
Tensor tensor(std::span<const T> values, const Dims& shape, Device device = default_device());
template <class T>
Tensor tensor(const std::vector<T>& values, const Dims& shape, Device device = default_device());
// Nested braces give the shape: tensor({{1, 2}, {3, 4}}) is f32[2, 2]. The dtype is f32, whatever
// the numbers, or the template argument: tensor<std::int64_t>({1, 2}).
Tensor tensor(std::initializer_list<core::TensorLiteral> values, Device device = default_device());
template <class T>
Tensor tensor(std::initializer_list<core::TensorLiteral> values, Device device = default_device());

// Random draws are Philox, keyed by the seed, a step counter and the draw's place in the step: the
// same program gives the same numbers on every device. manual_seed starts over at step 0, place 0,
// on all devices.
void manual_seed(std::uint64_t seed);
void next_random_step(Device device = default_device());
BRRR_CREATION(rand)   // uniform in [0, 1)
BRRR_CREATION(randn)  // standard normal
#undef BRRR_CREATION
Tensor randint(std::int64_t low, std::int64_t high, const Dims& shape,
               Options options = {.dtype = i64});
Tensor rand_like(const Tensor& x);
Tensor randn_like(const Tensor& x);
Tensor bernoulli(const Tensor& probability);
Tensor dropout(const Tensor& x, double p);

// --- Moving and reading ---

// x itself if neither device nor dtype changes. With Async::yes the host does not wait for a copy
// between the host and CUDA, which runs in the order of the device's current stream:
// - To CUDA from pinned memory: x must keep its values until the stream has executed the copy
//   (record an event after the call, or synchronize). x may be released at once: its memory is kept
//   that long. Pageable memory is copied to pinned staging slots before the call returns, so it may
//   change at once; the call waits only while more than the staging's 16 MiB is in flight.
// - To the host: the result is pinned, and may be read when the stream has executed the copy.
// In every case the call first waits for pending writes of a CPU stream.
Tensor to(const Tensor& x, Device device, Async async = Async::no);
Tensor to(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device, DType dtype, Async async = Async::no);
// A copy in pinned host memory, which CUDA devices access directly; x itself if it is pinned
// already. tensor/host_copy.h has `is_pinned`, and `copy_bytes`, which fills such a tensor again.
Tensor pin_memory(const Tensor& x);
Tensor cast(const Tensor& x, DType dtype);
Tensor contiguous(const Tensor& x);  // x itself when it already is
Tensor clone(const Tensor& x);

// Reading waits for the device. item<T> converts to T as `cast` does, so item<std::int64_t> is
// exact for integers; item(x) is a double, and exact for integers up to 2^53.
template <class T>
T item(const Tensor& x);
double item(const Tensor& x);
template <class T>
std::vector<T> to_vector(const Tensor& x);
// Dtype, shape and values in columns; of more than 1000 values, the first and last three along each
// dimension.
std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

// --- Pointwise: one function a row of ops.def ---
// Operands broadcast and promote; any of them may be a number, as long as one is a tensor.

// Overloads of in-place functions for a temporary, usually a view: fill_(select(x, 0, i), 1) and
// copy_(x[0], y) write to x.
#define BRRR_INTO_TEMPORARY(name)                        \
  template <class... Operands>                           \
  Tensor name(Tensor&& into, const Operands&... other) { \
    name(into, other...);                                \
    return std::move(into);                              \
  }

#define BRRR_UNARY(name, ...)   \
  Tensor name(const Tensor& a); \
  Tensor& name##_(Tensor& a);   \
  BRRR_INTO_TEMPORARY(name##_)
#define BRRR_BINARY(name, ...)                   \
  Tensor name(const Tensor& a, const Tensor& b); \
  Tensor name(const Tensor& a, core::Scalar b);  \
  Tensor name(core::Scalar a, const Tensor& b);  \
  Tensor& name##_(Tensor& a, const Tensor& b);   \
  Tensor& name##_(Tensor& a, core::Scalar b);    \
  BRRR_INTO_TEMPORARY(name##_)
#define BRRR_TERNARY(name, ...)                                                 \
  Tensor name(const Tensor& a, const core::Operand& b, const core::Operand& c); \
  Tensor& name##_(Tensor& a, const core::Operand& b, const core::Operand& c);   \
  BRRR_INTO_TEMPORARY(name##_)
#include <brrr/dispatch/ops.def>

// One side of a clamp; NaN stays NaN.
Tensor clamp_min(const Tensor& x, const core::Operand& low);
Tensor& clamp_min_(Tensor& x, core::Scalar low);
Tensor clamp_max(const Tensor& x, const core::Operand& high);
Tensor& clamp_max_(Tensor& x, core::Scalar high);
// a + value * b * c, and a + value * b / c.
Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, core::Scalar value);
Tensor& addcmul_(Tensor& a, const Tensor& b, const Tensor& c, core::Scalar value);
Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, core::Scalar value);
Tensor& addcdiv_(Tensor& a, const Tensor& b, const Tensor& c, core::Scalar value);
// `value` where the mask is true, in x's type.
Tensor masked_fill(const Tensor& x, const Tensor& mask, core::Scalar value);
Tensor& masked_fill_(Tensor& x, const Tensor& mask, core::Scalar value);

Tensor& copy_(Tensor& destination, const Tensor& source);  // converts and broadcasts
Tensor& fill_(Tensor& x, core::Scalar value);
Tensor& zero_(Tensor& x);

BRRR_INTO_TEMPORARY(clamp_min_)
BRRR_INTO_TEMPORARY(clamp_max_)
BRRR_INTO_TEMPORARY(masked_fill_)
BRRR_INTO_TEMPORARY(copy_)
BRRR_INTO_TEMPORARY(fill_)
BRRR_INTO_TEMPORARY(zero_)
#undef BRRR_INTO_TEMPORARY

// Functions of <cmath> that have another name here, or are written with others.
Tensor fabs(const Tensor& x) = delete;                   // abs(x)
Tensor fmax(const Tensor& a, const Tensor& b) = delete;  // maximum(a, b)
Tensor fmin(const Tensor& a, const Tensor& b) = delete;  // minimum(a, b)
Tensor fmod(const Tensor& a, const Tensor& b) = delete;  // remainder(a, b), with b's sign
Tensor rint(const Tensor& x) = delete;                   // round(x)
Tensor nearbyint(const Tensor& x) = delete;              // round(x)
Tensor fma(const Tensor& a, const Tensor& b, const Tensor& c) = delete;  // a * b + c
Tensor hypot(const Tensor& a, const Tensor& b) = delete;  // sqrt(square(a) + square(b))
Tensor cbrt(const Tensor& x) = delete;                    // sign(x) * pow(abs(x), 1.0 / 3)
Tensor exp2(const Tensor& x) = delete;                    // exp(x * std::log(2))
Tensor log10(const Tensor& x) = delete;                   // log(x) / std::log(10)
Tensor asinh(const Tensor& x) = delete;                   // log(x + sqrt(square(x) + 1))
Tensor acosh(const Tensor& x) = delete;                   // log(x + sqrt(square(x) - 1))
Tensor atanh(const Tensor& x) = delete;                   // (log1p(x) - log1p(-x)) / 2
Tensor erfc(const Tensor& x) = delete;                    // 1 - erf(x)

// Comparisons return bool tensors. Combine them with & | ^ ~; && and || need single bools. `equal`
// compares whole tensors.
#define BRRR_OPERATOR(sign, name)                                                      \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) { return name(a, b); } \
  inline Tensor operator sign(const Tensor& a, core::Scalar b) { return name(a, b); }  \
  inline Tensor operator sign(core::Scalar a, const Tensor& b) { return name(a, b); }
#define BRRR_ASSIGNMENT(sign, name)                                                          \
  inline Tensor& operator sign(Tensor& a, const Tensor& b) { return name(a, b); }            \
  inline Tensor& operator sign(Tensor& a, core::Scalar b) { return name(a, b); }             \
  inline Tensor operator sign(Tensor&& a, const Tensor& b) { return name(std::move(a), b); } \
  inline Tensor operator sign(Tensor&& a, core::Scalar b) { return name(std::move(a), b); }
BRRR_OPERATOR(+, add)
BRRR_OPERATOR(-, sub)
BRRR_OPERATOR(*, mul)
BRRR_OPERATOR(/, div)
BRRR_OPERATOR(&, bitwise_and)
BRRR_OPERATOR(|, bitwise_or)
BRRR_OPERATOR(^, bitwise_xor)
BRRR_OPERATOR(==, eq)
BRRR_OPERATOR(!=, ne)
BRRR_OPERATOR(<, lt)
BRRR_OPERATOR(<=, le)
BRRR_OPERATOR(>, gt)
BRRR_OPERATOR(>=, ge)
BRRR_ASSIGNMENT(+=, add_)
BRRR_ASSIGNMENT(-=, sub_)
BRRR_ASSIGNMENT(*=, mul_)
BRRR_ASSIGNMENT(/=, div_)
BRRR_ASSIGNMENT(&=, bitwise_and_)
BRRR_ASSIGNMENT(|=, bitwise_or_)
BRRR_ASSIGNMENT(^=, bitwise_xor_)
#undef BRRR_OPERATOR
#undef BRRR_ASSIGNMENT
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor operator~(const Tensor& a) { return bitwise_not(a); }

// Whether shapes and all elements are equal, by a == b; NaN equals nothing. Waits for the device.
bool equal(const Tensor& a, const Tensor& b);
// Whether |a - b| <= atol + rtol |b|, computed in f32 or wider. An infinity is close to itself
// only, NaN to NaN only with equal_nan.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);

// --- Reductions: over the dims named, or over all ---

// As in PyTorch, an empty list of dims means all of them, except in `any` and `all`, where it means
// none. A 0-d tensor accepts dimension 0 or -1, here and wherever PyTorch allows it.

#define BRRR_REDUCTION(name, ...) \
  Tensor name(const Tensor& x);   \
  Tensor name(const Tensor& x, const Dims& dims, bool keepdim = false);
#define BRRR_ARG_REDUCTION(name, ...)                          \
  Tensor name(const Tensor& x);                                \
  Tensor name(const Tensor& x, int dim, bool keepdim = false); \
  Tensor name(const Tensor& x, bool, bool = false) = delete;  // keepdim without a dimension
#include <brrr/dispatch/ops.def>

// `correction` 1 divides by n - 1.
Tensor var(const Tensor& x, const Dims& dims = {}, bool keepdim = false, int correction = 1);
// With `using namespace brrr` write brrr::std, since std alone is ambiguous.
Tensor std(const Tensor& x, const Dims& dims = {}, bool keepdim = false, int correction = 1);
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor cumsum(const Tensor& x, int dim);

// --- Composites: written over other ops; fusion makes them one kernel ---

Tensor softmax(const Tensor& x, int dim);
Tensor log_softmax(const Tensor& x, int dim);
// Over the last dimensions, as many as `weight` has; weight and bias may be undefined.
Tensor layer_norm(const Tensor& x, int dims, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
Tensor rms_norm(const Tensor& x, int dims, const Tensor& weight = {}, double eps = 1e-6);

// --- Matrix products ---

// 2-d, 1-d and batched as PyTorch's matmul; transposed views are used as they are.
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});  // x weightᵀ + bias
Tensor affine(const Tensor& x, const Tensor& factor, const Tensor& row);        // x factor + row

// --- Shape ---

// A view where the strides allow it, else a copy. One size may be -1.
Tensor reshape(const Tensor& x, const Dims& shape);
Tensor view(const Tensor& x, const Dims& shape);  // throws where reshape would copy
Tensor permute(const Tensor& x, const Dims& order);
Tensor transpose(const Tensor& x, int dim0, int dim1);
Tensor movedim(const Tensor& x, int from, int to);
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1);
Tensor select(const Tensor& x, int dim, std::int64_t index);
Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
Tensor expand(const Tensor& x, const Dims& shape);  // -1 keeps a size
// The adjoint of expand: sums x over the dimensions in which `shape` is broadcast to x's shape; x
// itself if it has that shape.
Tensor sum_to(const Tensor& x, const Dims& shape);
// A copy with the elements in reverse order along a dimension.
Tensor flip(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x);
Tensor unsqueeze(const Tensor& x, int dim);
Tensor flatten(const Tensor& x, int first = 0, int last = -1);
// The adjoint of slice: zeros of `size` along a dimension, with x from `start` on at every step-th
// position.
Tensor unslice(const Tensor& x, int dim, std::int64_t start, std::int64_t size,
               std::int64_t step = 1);
// Into parts of one size (the last may be smaller), or of the sizes listed: split(x, {2}) is one
// part of size 2.
std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim = 0);
std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, int dim = 0);
std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> sizes, int dim = 0);
std::vector<Tensor> chunk(const Tensor& x, int chunks, int dim = 0);
Tensor cat(const std::vector<Tensor>& parts, int dim = 0);
Tensor stack(const std::vector<Tensor>& parts, int dim = 0);
// Copies of x next to each other, times[i] along dimension i. `repeat` needs a number for each
// dimension and adds leading dimensions if there are more; `tile` uses 1 for missing leading
// numbers.
Tensor repeat(const Tensor& x, const Dims& times);
Tensor tile(const Tensor& x, const Dims& times);
// Shifts elements by `shift` positions along the dimension; those that leave at one end enter at
// the other.
Tensor roll(const Tensor& x, std::int64_t shift, int dim);

// --- Indexing ---

// out[i][j] = x[index[i][j]][j] for dim 0, and so on; index has x's rank.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
Tensor index_select(const Tensor& x, int dim, const Tensor& index);  // index is 1-d
Tensor embedding(const Tensor& weight, const Tensor& index);  // rows of weight, in index's shape
Tensor scatter_add(const Tensor& base, int dim, const Tensor& index, const Tensor& source);
Tensor nonzero(
    const Tensor& condition);  // [count, rank] of i64; reads the values, so it waits for the device
Tensor tril(const Tensor& x, int diagonal = 0);
Tensor triu(const Tensor& x, int diagonal = 0);

}  // namespace brrr
