// The tensor handle: a counted pointer to a shape, strides and a place in a storage. Copying a
// handle copies no data. A Tensor knows nothing of ops; those are free functions in ops/.
//
// A default-constructed handle is undefined: every accessor but `defined` and `describe` throws
// "[shape] expected a tensor, got an undefined one", naming itself.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include <brrr/tensor/device.h>
#include <brrr/tensor/dims.h>
#include <brrr/tensor/dtype.h>
#include <brrr/tensor/index.h>
#include <brrr/tensor/tensor_fields.h>

namespace brrr {

namespace core {
// "[what] expected a tensor, got an undefined one"
[[noreturn]] void undefined_tensor(const char* what);
}  // namespace core

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) : fields_(other.fields_) {
    if (fields_) fields_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Tensor(Tensor&& other) noexcept : fields_(std::exchange(other.fields_, nullptr)) {}
  // Assignment rebinds the handle; it copies no elements.
  Tensor& operator=(const Tensor& other) & {
    Tensor(other).swap(*this);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  // Deleted: assignment to a temporary handle would change no element.
  template <class T>
  void operator=(const T&) && = delete;  // for x[0] = y write copy_(x[0], y) or fill_(x[0], 3)
  ~Tensor() {
    // With a count of one, no other thread can reach the tensor: no atomic subtraction is needed.
    if (fields_ && (fields_->refs.load(std::memory_order_acquire) == 1 ||
                    fields_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1))
      destroy(fields_);
  }
  void swap(Tensor& other) noexcept { std::swap(fields_, other.fields_); }

  bool defined() const { return fields_ != nullptr; }

  DType dtype() const { return get("dtype").word.dtype(); }
  Device device() const { return get("device").word.device(); }
  int rank() const { return get("rank").word.rank(); }
  std::int64_t numel() const { return get("numel").numel; }
  core::Sizes shape() const {
    const core::TensorFields& fields = get("shape");
    return core::Sizes(fields.dims, fields.word.rank());
  }
  core::Sizes strides() const {
    const core::TensorFields& fields = get("strides");
    return core::Sizes(fields.strides, fields.word.rank());
  }
  // The size of a dimension; a negative number counts from the end. Throws if out of range.
  std::int64_t size(int dim) const;
  std::int64_t stride(int dim) const;
  bool is_contiguous() const { return get("is_contiguous").word.contiguous(); }
  bool is_meta() const { return get("is_meta").word.keys() & core::TensorWord::kMeta; }
  bool is_traced() const { return get("is_traced").word.keys() & core::TensorWord::kTraced; }
  // A meta tensor that is not a placeholder of a trace: no replay will compute its values.
  bool without_values() const { return is_meta() && !is_traced(); }

  // The bytes of the elements; the offset in the storage, in elements.
  std::size_t bytes() const {
    const core::TensorFields& fields = get("bytes");
    return static_cast<std::size_t>(fields.numel) * size_of(fields.word.dtype());
  }
  std::int64_t storage_offset() const;
  std::uint32_t version() const;  // counts writes in place to the storage
  bool shares_storage_with(const Tensor& other) const {
    const core::Storage* storage = get("shares_storage_with").storage;
    return storage && storage == other.get("shares_storage_with").storage;
  }
  // Whether both views have the same elements of one storage in the same order.
  bool same_view_as(const Tensor& other) const;

  void* data() const { return get("data").data; }
  // Typed access; throws when T is not the dtype. For CPU tensors the pointer may be read after the
  // CPU stream that wrote it has been synchronized.
  template <class T>
  T* data() const {
    const core::TensorFields& fields = get("data");
    if (core::dtype_of<std::remove_const_t<T>> != fields.word.dtype())
      wrong_type(core::dtype_of<std::remove_const_t<T>>);
    return static_cast<T*>(fields.data);
  }

  // Views, as numpy's: x[1], x[-1], x[Slice{1, 3}], x[{0, ellipsis, Slice{.step = 2}, newaxis}].
  // Operators [] must be members; ops/subscript.cpp defines them over ops.
  Tensor operator[](const TensorIndex& index) const;
  Tensor operator[](std::initializer_list<TensorIndex> indices) const;
  // Copies of rows: at the indices in an integer tensor of any shape, or where a bool tensor is
  // true (the host waits for it and reads it).
  Tensor operator[](const Tensor& index) const;

  // "f32[64, 128]", with the device when it is not the CPU
  std::string describe() const;

 private:
  friend struct core::TensorImpl;
  explicit Tensor(core::TensorFields* owned) : fields_(owned) {}
  static void destroy(core::TensorFields* fields) noexcept;
  const core::TensorFields& get(const char* accessor) const {
    if (!fields_) [[unlikely]]
      core::undefined_tensor(accessor);
    return *fields_;
  }
  [[noreturn]] void wrong_type(DType asked) const;

  core::TensorFields* fields_ = nullptr;
};

}  // namespace brrr
