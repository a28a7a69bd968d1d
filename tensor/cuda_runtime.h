// The CUDA implementation of DeviceRuntime: one DeviceState for each device, made at first use and
// never destroyed, since the driver may already be unloaded at exit.
#pragma once

#include <atomic>
#include <string>

#include <brrr/tensor/cuda_allocator.h>
#include <brrr/tensor/cuda_api.h>
#include <brrr/tensor/cuda_staging.h>
#include <brrr/tensor/cuda_stream.h>
#include <brrr/tensor/runtime.h>

namespace brrr::cu {

struct DeviceState {
  explicit DeviceState(int index);

  int index = 0;
  CUdevice handle = 0;
  CUcontext context = nullptr;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int shared_memory = 0;  // the most for one thread block, in bytes
  std::size_t total_memory = 0;
  std::atomic<int> captures{0};  // streams of this device that are being captured

  StreamPool streams;
  Allocator allocator, pinned;
  Staging staging;

  int attribute(CUdevice_attribute attribute) const;
};

extern std::atomic<DeviceState*> device_states[kMaxDevices];

DeviceState& start_device(int index);  // throws when there is no such device
void switch_to(DeviceState& device);

inline DeviceState& device_state(int index) {
  DeviceState* state = device_states[index].load(std::memory_order_acquire);
  return state ? *state : start_device(index);
}

// Makes the device's context current on the calling thread. Remembered per thread: code that sets
// another context must restore this one.
inline void make_current(DeviceState& device) {
  if (thread_context.cuda_device != &device) [[unlikely]]
    switch_to(device);
}

// This thread's current stream on `device`, with the context current for a launch.
inline CudaStream& current_stream(Device device) {
  DeviceState& state = device_state(device.index);
  make_current(state);
  StreamState* chosen = thread_context.stream(device);
  return chosen ? static_cast<CudaStream&>(*chosen) : *state.streams.default_stream();
}

// Temporary device memory of one op, on the device's current stream. May be destroyed as soon as
// the work that uses it has been launched there.
class Scratch {
 public:
  Scratch(Device device, std::size_t bytes) : storage_(new_storage(device, bytes)) {}
  ~Scratch() { storage_->drop(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return storage_->data; }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(storage_->data); }

 private:
  Storage* storage_;
};

}  // namespace brrr::cu
