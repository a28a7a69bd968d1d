// The CUDA side of the runtime: one DeviceState a device, made at first use and kept for the life
// of the process (at exit the driver may be gone already, so nothing is given back).
#pragma once

#include <atomic>
#include <string>

#include <brrr/tensor/cuda_allocator.h>
#include <brrr/tensor/cuda_api.h>
#include <brrr/tensor/cuda_host_memory.h>
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
  int shared_memory = 0;  // what one block may ask for, in bytes
  std::size_t total_memory = 0;
  std::atomic<int> captures{0};  // streams of this device that are being captured

  StreamPool streams;
  Allocator allocator;
  Staging staging;

  int attribute(CUdevice_attribute attribute) const;
};

extern std::atomic<DeviceState*> device_states[kMaxDevices];
extern constinit thread_local DeviceState* current_device;

DeviceState& start_device(int index);  // throws when there is no such device
void switch_to(DeviceState& device);

inline DeviceState& device_state(int index) {
  DeviceState* state = device_states[index].load(std::memory_order_acquire);
  return state ? *state : start_device(index);
}

// Makes the device's context the calling thread's. Remembered per thread: code that changes the
// context behind brrr's back restores it.
inline void make_current(DeviceState& device) {
  if (current_device != &device) [[unlikely]]
    switch_to(device);
}

// The stream that work on `device` goes to from this thread, with the context ready for a launch.
inline CudaStream& current_stream(Device device) {
  DeviceState& state = device_state(device.index);
  make_current(state);
  StreamState* chosen = current_streams[1][device.index];
  return chosen ? static_cast<CudaStream&>(*chosen) : *state.streams.default_stream();
}

// Device memory for the length of one op, on the device's current stream. It may go as soon as the
// work that uses it has been launched there.
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

// Gives everything of every device back to the driver; the next use starts anew. For tests that
// change the table and for leak checks; throws while storages live.
void shut_down();
// Forgets every device, whether or not the driver still answers. What lives on them must not be
// used any more.
void abandon() noexcept;

}  // namespace brrr::cu
