// The implementation of tensors, for the library only: the data that handles share, and functions
// that make tensors. Programs include tensor.h.
#pragma once

#include <brrr/tensor/storage.h>
#include <brrr/tensor/tensor.h>

namespace brrr {

inline constexpr std::uint32_t kReplayed = 1u << 21;  // of a word: a compiled step's result

// The key of the backend that serves calls with such an input.
constexpr std::uint32_t backend_key(Device device, bool meta) {
  return meta ? TensorWord::kMeta : device.is_cpu() ? 1u : 2u;
}

// Autograd's data of a tensor, owned by the tensor.
struct core::TensorExtension {
  virtual ~TensorExtension() = default;
};

struct core::TensorImpl : core::TensorFields {
  static TensorImpl* of(const Tensor& tensor) { return static_cast<TensorImpl*>(tensor.fields_); }
  // A handle that takes over one reference.
  static Tensor handle(TensorImpl* impl) { return Tensor(impl); }

  void set_word(DType dtype, Device device, int rank, bool contiguous, bool meta) {
    word.bits = static_cast<std::uint32_t>(dtype) | static_cast<std::uint32_t>(device.type) << 12 |
                static_cast<std::uint32_t>(device.index & 15u) << 8 |
                static_cast<std::uint32_t>(rank) << 16 |
                (contiguous ? TensorWord::kContiguous : 0u) |
                backend_key(device, meta) << TensorWord::kKeyShift;
  }
  // Keys of calls that the tensor is an input of.
  void add_keys(std::uint32_t keys) { word.bits |= keys << TensorWord::kKeyShift; }
  void remove_keys(std::uint32_t keys) { word.bits &= ~(keys << TensorWord::kKeyShift); }
  std::uint32_t version() const {
    return storage ? storage->version.load(std::memory_order_relaxed) : 0;
  }

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  void drop() { const Tensor last(this); }
};

inline bool same_shape(const TensorImpl& a, const TensorImpl& b) {
  if (a.word.rank() != b.word.rank()) return false;
  for (int i = 0; i < a.word.rank(); ++i) {
    if (a.dims[i] != b.dims[i]) return false;
  }
  return true;
}

// "[what] expected a tensor, got an undefined one as operand 1"
[[noreturn]] void undefined_operand(const char* what, int operand);

// Throws where one of the tensors is undefined, and says which if there are several.
template <class... Tensors>
void require_defined(const char* what, const Tensors&... tensors) {
  if (!(tensors.defined() && ...)) [[unlikely]] {
    if constexpr (sizeof...(Tensors) == 1) undefined_tensor(what);
    int operand = 0;
    static_cast<void>(((tensors.defined() && ++operand) && ...));
    undefined_operand(what, operand);
  }
}

// Make tensors; ops and file readers build on these.
Tensor make_tensor(DType dtype, std::span<const std::int64_t> shape,
                   Device device);  // uninitialized, contiguous
Tensor make_meta_tensor(DType dtype, std::span<const std::int64_t> shape,
                        Device device);  // shape only
// Takes over one reference to `storage`; `offset` in elements. The caller has checked the bounds.
Tensor make_tensor_on(Storage* storage, DType dtype, std::span<const std::int64_t> shape,
                      std::span<const std::int64_t> strides, std::int64_t offset);
// The same contiguous elements under another shape, which the caller has checked.
Tensor make_contiguous_view(const Tensor& base, std::span<const std::int64_t> shape);
// Another view of the same storage (meta tensors have none); `offset` is relative to `base`'s first
// element.
Tensor make_view(const Tensor& base, std::span<const std::int64_t> shape,
                 std::span<const std::int64_t> strides, std::int64_t offset = 0);

}  // namespace brrr
