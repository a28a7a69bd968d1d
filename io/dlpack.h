// DLPack: tensors handed to and taken from other libraries without a copy, both in the versioned
// form (1.x) and the one before it.
//
// The structs below have the layout of DLPack's own header. They are in a namespace, so a program
// may include another dlpack.h as well and reinterpret_cast between the two.
#pragma once

#include <cstddef>
#include <cstdint>

#include <brrr/tensor/tensor.h>

namespace brrr {

namespace dlpack {

inline constexpr std::uint32_t kMajorVersion = 1, kMinorVersion = 0;
inline constexpr std::uint64_t kReadOnly = 1;  // a bit of `flags`

enum DeviceCode : std::int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 };
enum TypeCode : std::uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6
};

struct DLPackVersion {
  std::uint32_t major, minor;
};

struct DLDevice {
  std::int32_t device_type;  // a DeviceCode, or one that brrr does not know
  std::int32_t device_id;
};

struct DLDataType {
  std::uint8_t code;  // a TypeCode, or one that brrr does not know
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null means contiguous
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

static_assert(sizeof(void*) == 8 && sizeof(DLDevice) == 8 && sizeof(DLDataType) == 4);
static_assert(offsetof(DLTensor, device) == 8 && offsetof(DLTensor, ndim) == 16 &&
              offsetof(DLTensor, dtype) == 20 && offsetof(DLTensor, shape) == 24 &&
              offsetof(DLTensor, strides) == 32 && offsetof(DLTensor, byte_offset) == 40 &&
              sizeof(DLTensor) == 48);
static_assert(offsetof(DLManagedTensor, manager_ctx) == 48 &&
              offsetof(DLManagedTensor, deleter) == 56 && sizeof(DLManagedTensor) == 64);
static_assert(offsetof(DLManagedTensorVersioned, manager_ctx) == 8 &&
              offsetof(DLManagedTensorVersioned, deleter) == 16 &&
              offsetof(DLManagedTensorVersioned, flags) == 24 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32 &&
              sizeof(DLManagedTensorVersioned) == 80);

}  // namespace dlpack

// A view of the tensor's memory for another library. The memory stays allocated until that library
// calls the deleter. Never marked read-only. Waits for work on the CPU's current stream; on CUDA
// the consumer orders its own stream after the current one.
dlpack::DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
dlpack::DLManagedTensor* to_dlpack_legacy(const Tensor& tensor);

// A tensor on the memory of another library. Takes ownership of `managed` in every case: the
// deleter runs when the last view is destroyed, or before an error is thrown. Memory marked
// read-only is copied, since any tensor may be written. Elements may overlap, as those of a sliding
// window do; writing to such a tensor throws. On CUDA the memory must be ready on the current
// stream, and work in flight when the last view is destroyed must be on a stream that the producer
// waits for.
Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed);
Tensor from_dlpack(dlpack::DLManagedTensor* managed);

}  // namespace brrr
