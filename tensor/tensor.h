// The tensor handle: a counted pointer to a shape, strides and a place in a storage. Copying a
// handle copies no data. A Tensor knows nothing of ops; those are free functions in ops/.
//
// A default-constructed handle is undefined: every accessor but `defined`, `impl` and `describe`
// throws "[shape] expected a tensor, got an undefined one", naming itself.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include <brrr/tensor/device.h>
#include <brrr/tensor/dims.h>
#include <brrr/tensor/dtype.h>
#include <brrr/tensor/index.h>
#include <brrr/tensor/storage.h>

namespace brrr {

// What a layer above hangs on a tensor, which owns it.
struct TensorExtension {
  virtual ~TensorExtension() = default;
};

// dtype, device, rank and flags packed in one word that is always written whole: separate bytes
// written one by one and read as a word stall the store buffer, 20 ns an op.
struct TensorWord {
  std::uint32_t bits = 0;

  static constexpr std::uint32_t kContiguous = 1u << 20;
  static constexpr std::uint32_t kReplayed = 1u << 21;  // a result of a compiled step; for messages
  static constexpr int kKeyShift = 24;  // dispatch keys of calls that the tensor is an input of

  static constexpr std::uint32_t kMeta = 4u;     // the keys of a tensor without memory,
  static constexpr std::uint32_t kTraced = 16u;  // and of one that stands for a value in a trace
  static constexpr std::uint32_t backend_key(Device device, bool meta) {
    return meta ? kMeta : device.is_cpu() ? 1u : 2u;
  }
  static constexpr TensorWord pack(DType dtype, Device device, int rank, bool contiguous,
                                   bool meta) {
    return {static_cast<std::uint32_t>(dtype) | static_cast<std::uint32_t>(device.type) << 12 |
            static_cast<std::uint32_t>(device.index & 15u) << 8 |
            static_cast<std::uint32_t>(rank) << 16 | (contiguous ? kContiguous : 0u) |
            backend_key(device, meta) << kKeyShift};
  }
  constexpr DType dtype() const { return static_cast<DType>(bits & 0xffu); }
  constexpr Device device() const {
    return Device(static_cast<DeviceType>((bits >> 12) & 15u), static_cast<int>((bits >> 8) & 15u));
  }
  constexpr int rank() const { return static_cast<int>((bits >> 16) & 15u); }
  constexpr bool contiguous() const { return bits & kContiguous; }
  constexpr std::uint32_t keys() const { return bits >> kKeyShift; }
  constexpr TensorWord with_keys(std::uint32_t keys) const { return {bits | keys << kKeyShift}; }
  constexpr TensorWord without_keys(std::uint32_t keys) const {
    return {bits & ~(keys << kKeyShift)};
  }
};

struct TensorImpl {
  std::atomic<std::uint32_t> refs{1};
  TensorWord word;
  void* data = nullptr;        // the first element; null when there is none
  Storage* storage = nullptr;  // null for meta tensors
  std::int64_t numel = 0;
  TensorExtension* autograd = nullptr;  // its place on the tape
  std::int64_t dims[kMaxDims];          // only the first `rank` hold values
  std::int64_t strides[kMaxDims];       // in elements

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  void drop() {
    if (refs.load(std::memory_order_acquire) == 1 ||
        refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
      destroy();
  }

 private:
  void destroy();
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(TensorImpl* adopted) : impl_(adopted) {}
  Tensor(const Tensor& other) : impl_(other.impl_) {
    if (impl_) impl_->retain();
  }
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  // Assignment makes the handle name another tensor; it copies no elements.
  Tensor& operator=(const Tensor& other) & {
    Tensor(other).swap(*this);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  // Of a temporary it would change nothing.
  template <class T>
  void operator=(const T&) && = delete;  // for x[0] = y write copy_(x[0], y) or fill_(x[0], 3)
  ~Tensor() {
    if (impl_) impl_->drop();
  }
  void swap(Tensor& other) noexcept { std::swap(impl_, other.impl_); }

  bool defined() const { return impl_ != nullptr; }
  TensorImpl* impl() const { return impl_; }

  DType dtype() const { return get("dtype").word.dtype(); }
  Device device() const { return get("device").word.device(); }
  int rank() const { return get("rank").word.rank(); }
  std::int64_t numel() const { return get("numel").numel; }
  std::span<const std::int64_t> shape() const {
    const TensorImpl& impl = get("shape");
    return {impl.dims, static_cast<std::size_t>(impl.word.rank())};
  }
  std::span<const std::int64_t> strides() const {
    const TensorImpl& impl = get("strides");
    return {impl.strides, static_cast<std::size_t>(impl.word.rank())};
  }
  // The size of a dimension, which may be negative to count from the end; throws when there is none
  // such.
  std::int64_t size(int dim) const;
  std::int64_t stride(int dim) const;
  bool is_contiguous() const { return get("is_contiguous").word.contiguous(); }
  bool is_meta() const { return get("is_meta").word.keys() & TensorWord::kMeta; }
  bool is_traced() const { return get("is_traced").word.keys() & TensorWord::kTraced; }
  // Meta, and no replay will give it any.
  bool without_values() const { return is_meta() && !is_traced(); }

  // Bytes of its elements, and where they start in the storage, in elements.
  std::size_t bytes() const {
    const TensorImpl& impl = get("bytes");
    return static_cast<std::size_t>(impl.numel) * size_of(impl.word.dtype());
  }
  std::int64_t storage_offset() const;
  std::uint32_t version() const {
    const TensorImpl& impl = get("version");
    return impl.storage ? impl.storage->version.load(std::memory_order_relaxed) : 0;
  }
  bool shares_storage_with(const Tensor& other) const {
    const Storage* storage = get("shares_storage_with").storage;
    return storage && storage == other.get("shares_storage_with").storage;
  }
  // True when both are the same elements in the same order.
  bool same_view_as(const Tensor& other) const;

  void* data() const { return get("data").data; }
  // Typed access; throws when T is not the dtype. For CPU tensors the pointer may be read after the
  // CPU stream that wrote it has been synchronized.
  template <class T>
  T* data() const {
    const TensorImpl& impl = get("data");
    if (dtype_of<std::remove_const_t<T>> != impl.word.dtype())
      wrong_type(dtype_of<std::remove_const_t<T>>);
    return static_cast<T*>(impl.data);
  }

  // Views, as numpy's: x[1], x[-1], x[Slice{1, 3}], x[{0, ellipsis, Slice{.step = 2}, newaxis}].
  // Operators [] must be members; ops/subscript.cpp defines them over ops.
  Tensor operator[](const TensorIndex& index) const;
  Tensor operator[](std::initializer_list<TensorIndex> indices) const;
  // Copies of rows: those that an integer tensor of any shape names, or those where a bool tensor
  // is true, which reads it.
  Tensor operator[](const Tensor& index) const;

  // "f32[64, 128]", with the device when it is not the CPU
  std::string describe() const;

 private:
  const TensorImpl& get(const char* accessor) const {
    if (!impl_) [[unlikely]]
      undefined(accessor);
    return *impl_;
  }
  [[noreturn]] static void undefined(const char* accessor);
  [[noreturn]] void wrong_type(DType asked) const;

  TensorImpl* impl_ = nullptr;
};

// How tensors come to be; ops and readers of files build on these.
Tensor make_tensor(DType dtype, std::span<const std::int64_t> shape,
                   Device device);  // uninitialized, contiguous
Tensor make_meta_tensor(DType dtype, std::span<const std::int64_t> shape,
                        Device device);  // shape only
// Takes over one reference to `storage`; `offset` in elements. The caller has checked the bounds.
Tensor make_tensor_on(Storage* storage, DType dtype, std::span<const std::int64_t> shape,
                      std::span<const std::int64_t> strides, std::int64_t offset);
// The same contiguous elements under another shape, which the caller has checked.
Tensor make_contiguous_view(const Tensor& base, std::span<const std::int64_t> shape);
// Another view of the same storage (or of the same absence of one); `offset` is relative to
// `base`'s first element.
Tensor make_view(const Tensor& base, std::span<const std::int64_t> shape,
                 std::span<const std::int64_t> strides, std::int64_t offset = 0);

}  // namespace brrr
