#include "brrr/io/dlpack.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "brrr/io/strided_bytes.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/runtime.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr {
namespace {

using dlpack::DLDataType;
using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;
using dlpack::DLTensor;

constexpr DLDataType type_for(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(size_of(dtype) * 8);
  switch (category_of(dtype)) {
    case Category::boolean: return {dlpack::kDLBool, bits, 1};
    case Category::integer: return {dlpack::kDLInt, bits, 1};
    default: return {dtype == DType::bf16 ? dlpack::kDLBfloat : dlpack::kDLFloat, bits, 1};
  }
}

std::string name_of(DLDataType type) {
  constexpr const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  return type.code < std::size(kinds) ? fmt::format("{}{}", kinds[type.code], type.bits)
                                      : fmt::format("code {} of {} bits", type.code, type.bits);
}

DType dtype_from(DLDataType type) {
  if (type.lanes != 1) {
    fail("[dlpack] expected elements of 1 lane, got {} lanes of {}", type.lanes, name_of(type));
  }
  for (int i = 0; i < kDTypes; ++i) {
    const DLDataType known = type_for(static_cast<DType>(i));
    if (known.code == type.code && known.bits == type.bits) return static_cast<DType>(i);
  }
  fail("[dlpack] expected float32, float64, float16, bfloat16, int32, int64 or bool8, got {}",
       name_of(type));
}

Device device_from(dlpack::DLDevice from) {
  switch (from.device_type) {
    case dlpack::kDLCPU:
    case dlpack::kDLCUDAHost:  // pinned memory of the host
      return cpu;
    case dlpack::kDLCUDA: {
      if (from.device_id < 0 || from.device_id >= kMaxDevices) {
        fail("[dlpack] expected a CUDA device from 0 to {}, got {}", kMaxDevices - 1,
             from.device_id);
      }
      const Device device = cuda(from.device_id);
      require_device(device, "dlpack");
      return device;
    }
    default:
      fail(
          "[dlpack] expected memory of the CPU (device type 1), of CUDA (2) or pinned (3), got "
          "device type {}",
          from.device_type);
  }
}

// The validated layout of an imported tensor.
struct Layout {
  DType dtype;
  Device device;
  Dims shape, strides;
  char* data = nullptr;
  std::size_t bytes = 0;  // from `data` to the end of the last element that the strides reach

  explicit Layout(const DLTensor& from)
      : dtype(dtype_from(from.dtype)), device(device_from(from.device)) {
    if (from.ndim < 0 || from.ndim > kMaxDims) {
      fail("[dlpack] expected 0 to {} dimensions, got {}", kMaxDims, from.ndim);
    }
    if (from.ndim > 0 && !from.shape) {
      fail("[dlpack] expected a shape of {} dimensions, got a null pointer", from.ndim);
    }
    const auto rank = static_cast<std::size_t>(from.ndim);
    if (rank > 0) shape = Dims(std::span<const std::int64_t>(from.shape, rank));
    const std::int64_t numel = checked_numel(shape, size_of(dtype), "dlpack");
    strides = rank > 0 && from.strides ? Dims(std::span<const std::int64_t>(from.strides, rank))
                                       : contiguous_strides(shape);
    if (numel == 0) {
      strides = contiguous_strides(shape);  // without elements the given strides do not matter
      return;
    }
    set_bytes();
    place(from);
  }

 private:
  void set_bytes() {
    std::int64_t last = 0;
    bool overflow = false;
    for (int i = 0; i < shape.size(); ++i) {
      std::int64_t reach;
      if (shape[i] == 1) continue;
      if (strides[i] < 0) {
        fail("[dlpack] expected strides of at least 0, got strides {}: copy the array first",
             to_string(strides));
      }
      overflow |= __builtin_mul_overflow(shape[i] - 1, strides[i], &reach);
      overflow |= __builtin_add_overflow(last, reach, &last);
    }
    overflow |= __builtin_add_overflow(last, 1, &last);
    overflow |= __builtin_mul_overflow(last, static_cast<std::int64_t>(size_of(dtype)), &last);
    if (overflow) {
      fail(
          "[dlpack] expected a range of bytes that fits into 63 bits, got shape {} with strides {}",
          to_string(shape), to_string(strides));
    }
    bytes = static_cast<std::size_t>(last);
  }

  void place(const DLTensor& from) {
    if (!from.data) {
      fail("[dlpack] expected data for {}{}, got a null pointer", brrr::name_of(dtype),
           to_string(shape));
    }
    std::uint64_t start, end;
    if (__builtin_add_overflow(reinterpret_cast<std::uint64_t>(from.data), from.byte_offset,
                               &start) ||
        __builtin_add_overflow(start, bytes, &end)) {
      fail("[dlpack] expected memory inside the address space, got byte offset {} and {} bytes",
           from.byte_offset, bytes);
    }
    if (start % size_of(dtype) != 0) {
      fail("[dlpack] expected data at a multiple of {} bytes for {}, got an address {} past one",
           size_of(dtype), brrr::name_of(dtype), start % size_of(dtype));
    }
    data = static_cast<char*>(from.data) + from.byte_offset;
  }
};

template <class Managed>
struct CallDeleter {
  void operator()(Managed* managed) const {
    if (managed->deleter) managed->deleter(managed);
  }
};

// An exported tensor. It has its own copy of the shape, since the consumer may write to it.
template <class Managed>
struct Exported {
  Managed managed{};
  Tensor tensor;
  Dims shape, strides;
};

template <class Managed>
Managed* export_tensor(const Tensor& tensor) {
  refuse_ordering_in_trace("dlpack");
  if (!tensor.defined() || tensor.is_meta()) {
    fail("[dlpack] expected a tensor with data, got {}{}",
         tensor.defined() ? "the meta tensor " : "", tensor.describe());
  }
  if (tensor.device().is_cpu()) {
    if (StreamState* queue = current_cpu_queue()) queue->synchronize();
  }
  auto* exported = new Exported<Managed>{
      .tensor = tensor, .shape = Dims(tensor.shape()), .strides = Dims(tensor.strides())};
  Managed& managed = exported->managed;
  managed.manager_ctx = exported;
  managed.deleter = [](Managed* self) {
    if (self) delete static_cast<Exported<Managed>*>(self->manager_ctx);
  };
  managed.dl_tensor = {.data = tensor.numel() > 0 ? tensor.data() : nullptr,
                       .device = {tensor.device().is_cpu() ? dlpack::kDLCPU : dlpack::kDLCUDA,
                                  tensor.device().index},
                       .ndim = tensor.rank(),
                       .dtype = type_for(tensor.dtype()),
                       .shape = exported->shape.begin(),
                       .strides = exported->strides.begin(),
                       .byte_offset = 0};
  return &managed;
}

// Refuses bools that are neither 0 nor 1, whose meaning is undefined. Reads elements that a stride
// of 0 repeats only once.
void require_bools(const Tensor& tensor) {
  Dims once(tensor.shape());
  for (int i = 0; i < tensor.rank(); ++i) {
    if (tensor.strides()[i] == 0) once[i] = std::min<std::int64_t>(once[i], 1);
  }
  const Tensor host = contiguous_on_host(make_view(tensor, once, tensor.strides()), "dlpack");
  const std::span bytes(static_cast<const std::uint8_t*>(host.data()), host.bytes());
  const auto bad = std::ranges::find_if(bytes, [](std::uint8_t byte) { return byte > 1; });
  if (bad != bytes.end()) fail("[dlpack] expected bools of 0 or 1, got a byte of {}", *bad);
}

template <class Managed>
Tensor import_tensor(std::unique_ptr<Managed, CallDeleter<Managed>> managed) {
  const Layout layout(managed->dl_tensor);
  Storage* storage = adopt_storage(
      layout.device, layout.data, layout.bytes,
      [](Storage& storage) noexcept {
        CallDeleter<Managed>()(static_cast<Managed*>(storage.context));
      },
      managed.get());
  managed.release();
  Tensor tensor;
  try {
    tensor = make_tensor_on(storage, layout.dtype, layout.shape, layout.strides, 0);
  } catch (...) {
    storage->drop();
    throw;
  }
  if (layout.dtype == boolean) require_bools(tensor);
  return tensor;
}

// A writable copy with the same strides, of the whole range of memory that they reach. The original
// may be released afterwards.
Tensor copy_of(const Tensor& tensor) {
  const auto length =
      static_cast<std::int64_t>(TensorImpl::of(tensor)->storage->bytes / size_of(tensor.dtype()));
  const Tensor copy = make_tensor(tensor.dtype(), Dims{length}, tensor.device());
  copy_bytes(copy, make_view(tensor, Dims{length}, Dims{1}));
  Stream::current(tensor.device()).synchronize();
  return make_view(copy, tensor.shape(), tensor.strides());
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor) {
  DLManagedTensorVersioned* managed = export_tensor<DLManagedTensorVersioned>(tensor);
  managed->version = {dlpack::kMajorVersion, dlpack::kMinorVersion};
  return managed;
}

DLManagedTensor* to_dlpack_legacy(const Tensor& tensor) {
  return export_tensor<DLManagedTensor>(tensor);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  if (!managed) fail("[dlpack] expected a DLManagedTensorVersioned, got a null pointer");
  std::unique_ptr<DLManagedTensorVersioned, CallDeleter<DLManagedTensorVersioned>> taken(managed);
  if (managed->version.major != dlpack::kMajorVersion) {
    fail("[dlpack] expected version {}.x, got {}.{}", dlpack::kMajorVersion, managed->version.major,
         managed->version.minor);
  }
  const bool read_only = managed->flags & dlpack::kReadOnly;
  const Tensor tensor = import_tensor(std::move(taken));
  return read_only ? copy_of(tensor) : tensor;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  if (!managed) fail("[dlpack] expected a DLManagedTensor, got a null pointer");
  return import_tensor(std::unique_ptr<DLManagedTensor, CallDeleter<DLManagedTensor>>(managed));
}

}  // namespace brrr
