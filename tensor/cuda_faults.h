// Errors that only a kernel can detect: an index or a value out of range. The kernel continues with
// a clamped index and writes a record on its device. The host reads the record, and throws, when it
// next waits for that device. Without a fault this check costs one load from host memory.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include <brrr/tensor/device.h>

namespace brrr::cu {

// Passed by value to kernels that check; ops/cuda/faults.inl has the device's side of it.
struct FaultSink {
  CUdeviceptr record;    // a FaultRecord in device memory
  CUdeviceptr flag;      // a word in pinned host memory: not 0 once there is a record
  std::uint64_t launch;  // the first launch to fault owns the record
  std::uint64_t op;      // its name: static text
};

enum class FaultKind : std::uint32_t {
  index,     // value in [0, high)
  integer,   // value in [low, high]
  floating,  // the same, and all three are bits of doubles
};

// Of all faults of one launch the one at the lowest position is kept, so that the message is the
// same in every run.
struct FaultRecord {
  std::uint64_t launch;
  std::uint64_t rank;  // the complement of the position in the tensor; 0: there is no record
  std::int64_t value, low, high;
  std::uint64_t op;
  std::uint32_t lock;
  FaultKind kind;
};

// Errors name the composite that calls `op`, if any; both names must be static. Makes the device's
// record at first use, during a capture as well.
FaultSink fault_sink(Device device, const char* op);

namespace detail {
extern std::atomic<volatile std::uint32_t*> fault_flags[kMaxDevices];
void throw_fault(Device device);
}  // namespace detail

// Frees the device's record; call before its context is released.
void drop_fault_record(Device device) noexcept;

// Call after the host has waited for work on the device (synchronize, a copy to the host). Throws
// "[gather] expected indices in [0, 5), got 7 at position 3" and clears the record.
inline void check_faults(Device device) {
  const volatile std::uint32_t* flag =
      detail::fault_flags[device.index].load(std::memory_order_acquire);
  if (flag && *flag) [[unlikely]]
    detail::throw_fault(device);
}

}  // namespace brrr::cu
