#include "brrr/tensor/tensor.h"

#include <fmt/format.h>

#include <new>

#include "brrr/tensor/fail.h"
#include "brrr/tensor/pool.h"
#include "brrr/tensor/tensor_impl.h"
#include "brrr/tensor/thread_context.h"

namespace brrr {
namespace {

TensorImpl* new_impl() { return new (Pool<TensorImpl>::take()) TensorImpl; }

// Fills dims and contiguous strides; returns the number of elements.
std::int64_t set_contiguous(TensorImpl& impl, DType dtype, std::span<const std::int64_t> shape) {
  const int rank = static_cast<int>(shape.size());
  std::int64_t numel = 1;
  if (rank <= kMaxDims) [[likely]] {
    std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
    bool bad = false;
    for (int i = rank - 1; i >= 0; --i) {
      const std::int64_t d = shape[i];
      impl.dims[i] = d;
      impl.strides[i] = numel;
      bad |= d < 1;
      bad |= __builtin_mul_overflow(bytes, d, &bytes);
      // May overflow, but only for shapes that checked_numel refuses below.
      static_cast<void>(__builtin_mul_overflow(numel, d < 1 ? 1 : d, &numel));
    }
    if (!bad) [[likely]]
      return numel;
  }
  try {
    const Dims checked(shape);  // throws when there are too many dimensions
    return checked_numel(checked, size_of(dtype), op_or("empty"));
  } catch (...) {
    impl.drop();
    throw;
  }
}

}  // namespace

void Tensor::destroy(core::TensorFields* fields) noexcept {
  auto* impl = static_cast<TensorImpl*>(fields);
  delete impl->autograd;
  if (impl->storage) impl->storage->drop();
  impl->~TensorImpl();
  Pool<TensorImpl>::give(impl);
}

Tensor make_tensor(DType dtype, std::span<const std::int64_t> shape, Device device) {
  TensorImpl* impl = new_impl();
  impl->numel = set_contiguous(*impl, dtype, shape);
  impl->set_word(dtype, device, static_cast<int>(shape.size()), true, false);
  Tensor tensor = TensorImpl::handle(impl);
  impl->storage = new_storage(device, static_cast<std::size_t>(impl->numel) * size_of(dtype));
  impl->data = impl->storage->data;
  return tensor;
}

Tensor make_meta_tensor(DType dtype, std::span<const std::int64_t> shape, Device device) {
  TensorImpl* impl = new_impl();
  impl->numel = set_contiguous(*impl, dtype, shape);
  impl->set_word(dtype, device, static_cast<int>(shape.size()), true, true);
  return TensorImpl::handle(impl);
}

namespace {

TensorImpl* view_impl(DType dtype, Device device, bool meta, std::span<const std::int64_t> shape,
                      std::span<const std::int64_t> strides) {
  TensorImpl* impl = new_impl();
  const int rank = static_cast<int>(shape.size());
  std::int64_t numel = 1, expected = 1;
  bool contiguous = true;
  for (int i = rank - 1; i >= 0; --i) {
    const std::int64_t d = shape[i];
    impl->dims[i] = d;
    impl->strides[i] = strides[i];
    numel *= d;
    contiguous &= d == 1 || strides[i] == expected;
    expected *= d;
  }
  impl->numel = numel;
  impl->set_word(dtype, device, rank, contiguous || numel == 0, meta);
  return impl;
}

// A handle to `impl`, which becomes a view of the storage of `from`.
Tensor on_storage_of(const TensorImpl& from, TensorImpl* impl, std::int64_t offset) {
  impl->add_keys(from.word.keys() & TensorWord::kTraced);
  if (from.storage) {
    from.storage->retain();
    impl->storage = from.storage;
    impl->data = static_cast<char*>(from.data) +
                 offset * static_cast<std::int64_t>(size_of(from.word.dtype()));
  }
  return TensorImpl::handle(impl);
}

}  // namespace

Tensor make_tensor_on(Storage* storage, DType dtype, std::span<const std::int64_t> shape,
                      std::span<const std::int64_t> strides, std::int64_t offset) {
  TensorImpl* impl = view_impl(dtype, storage->device, false, shape, strides);
  impl->storage = storage;
  impl->data =
      static_cast<char*>(storage->data) + offset * static_cast<std::int64_t>(size_of(dtype));
  return TensorImpl::handle(impl);
}

Tensor make_contiguous_view(const Tensor& base, std::span<const std::int64_t> shape) {
  const TensorImpl& from = *TensorImpl::of(base);
  TensorImpl* impl = new_impl();
  const int rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    impl->dims[i] = shape[i];
    impl->strides[i] = stride;
    stride *= shape[i] > 0 ? shape[i] : 1;
  }
  impl->numel = from.numel;
  impl->set_word(from.word.dtype(), from.word.device(), rank, true, base.is_meta());
  return on_storage_of(from, impl, 0);
}

Tensor make_view(const Tensor& base, std::span<const std::int64_t> shape,
                 std::span<const std::int64_t> strides, std::int64_t offset) {
  const TensorImpl& from = *TensorImpl::of(base);
  TensorImpl* impl =
      view_impl(from.word.dtype(), from.word.device(), base.is_meta(), shape, strides);
  return on_storage_of(from, impl, offset);
}

namespace {

int wrapped(const char* what, const Tensor& x, int dim) {
  const int counted = dim < 0 ? dim + x.rank() : dim;
  if (counted < 0 || counted >= x.rank())
    fail("[{}] expected a dimension of {}, got {}", what, x.describe(), dim);
  return counted;
}

}  // namespace

void undefined_operand(const char* what, int operand) {
  fail("[{}] expected a tensor, got an undefined one as operand {}", what, operand);
}

void core::undefined_tensor(const char* what) {
  fail("[{}] expected a tensor, got an undefined one", what);
}

std::int64_t Tensor::size(int dim) const { return get("size").dims[wrapped("size", *this, dim)]; }
std::int64_t Tensor::stride(int dim) const {
  return get("stride").strides[wrapped("stride", *this, dim)];
}

std::int64_t Tensor::storage_offset() const {
  const core::TensorFields& impl = get("storage_offset");
  if (!impl.storage) return 0;
  return (static_cast<char*>(impl.data) - static_cast<char*>(impl.storage->data)) /
         static_cast<std::int64_t>(size_of(impl.word.dtype()));
}

std::uint32_t Tensor::version() const {
  get("version");
  return TensorImpl::of(*this)->version();
}

bool Tensor::same_view_as(const Tensor& other) const {
  get("same_view_as");
  other.get("same_view_as");
  if (!shares_storage_with(other) || data() != other.data() || dtype() != other.dtype() ||
      !std::ranges::equal(shape(), other.shape())) {
    return false;
  }
  for (int i = 0; i < rank(); ++i) {
    if (shape()[i] != 1 && strides()[i] != other.strides()[i]) return false;
  }
  return true;
}

std::string Tensor::describe() const {
  if (!defined()) return "an undefined tensor";
  std::string text = fmt::format("{}{}", name_of(dtype()), to_string(shape()));
  if (!device().is_cpu()) text += " on " + to_string(device());
  return text;
}

void Tensor::wrong_type(DType asked) const {
  fail("[data] expected {}, got {}", name_of(asked), describe());
}

}  // namespace brrr
