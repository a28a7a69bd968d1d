// The data that all handles of a tensor share, as far as Tensor's inline accessors read it. The
// library's functions on it are in tensor/tensor_impl.h.
#pragma once

#include <atomic>
#include <cstdint>

#include <brrr/tensor/device.h>
#include <brrr/tensor/dims.h>
#include <brrr/tensor/dtype.h>

namespace brrr::core {

struct Storage;
struct TensorImpl;
struct TensorExtension;

// dtype, device, rank and flags in one word that is always written whole: bytes that are written
// one by one and then read as a word defeat store forwarding, which costs 20 ns an op.
struct TensorWord {
  std::uint32_t bits = 0;

  static constexpr std::uint32_t kContiguous = 1u << 20;
  static constexpr int kKeyShift = 24;
  static constexpr std::uint32_t kMeta = 4u;     // dispatch key of tensors without memory
  static constexpr std::uint32_t kTraced = 16u;  // dispatch key of a trace's placeholders

  constexpr DType dtype() const { return static_cast<DType>(bits & 0xffu); }
  constexpr Device device() const {
    return Device(static_cast<DeviceType>((bits >> 12) & 15u), static_cast<int>((bits >> 8) & 15u));
  }
  constexpr int rank() const { return static_cast<int>((bits >> 16) & 15u); }
  constexpr bool contiguous() const { return bits & kContiguous; }
  constexpr std::uint32_t keys() const { return bits >> kKeyShift; }
};

struct TensorFields {
  std::atomic<std::uint32_t> refs{1};
  TensorWord word;
  void* data = nullptr;        // the first element; null when there is none
  Storage* storage = nullptr;  // null for meta tensors
  std::int64_t numel = 0;
  TensorExtension* autograd = nullptr;  // its place on the tape
  std::int64_t dims[kMaxDims];          // only the first `rank` are set
  std::int64_t strides[kMaxDims];       // in elements
};

}  // namespace brrr::core
