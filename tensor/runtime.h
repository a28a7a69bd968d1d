// The interface between tensors and a kind of device: memory, streams, events and copies.
// Implemented once for the CPU and once for CUDA.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <brrr/tensor/allocator.h>
#include <brrr/tensor/device.h>
#include <brrr/tensor/stream_state.h>
#include <brrr/tensor/thread_context.h>

namespace brrr {

namespace core {
struct Storage;
}

struct DeviceRuntime {
  virtual ~DeviceRuntime() = default;

  // How many such devices there are; never throws. `why_none` is one clear line when the count is
  // 0.
  virtual int count() = 0;
  virtual std::string why_none() = 0;

  // Fills data, stream, release and context of a storage whose device and bytes are set.
  virtual void allocate(Storage& storage) = 0;
  virtual MemoryStats stats(Device device) = 0;
  virtual void reset_peak(Device device) = 0;
  virtual void empty_cache(Device device) = 0;

  virtual StreamState* default_stream(Device device) = 0;
  virtual std::shared_ptr<StreamState> new_stream(Device device) = 0;
  virtual std::unique_ptr<EventState> new_event(Device device, bool timed) = 0;
  virtual void synchronize(Device device) = 0;
};

// Memory that is not the host's.
struct CudaDeviceRuntime : DeviceRuntime {
  // Copies between a device and the host, in `stream`'s order. Both return whether the copy is
  // complete as far as host memory is concerned; if not, the caller keeps that memory until the
  // stream has executed the copy. Pageable memory is staged: such a copy is complete at return.
  virtual bool from_host(StreamState& stream, void* to, const void* host, std::size_t bytes) = 0;
  virtual bool to_host(StreamState& stream, void* host, const void* from, std::size_t bytes) = 0;
  virtual void fill_bytes(StreamState& stream, void* to, int value, std::size_t bytes) = 0;
  // Between two blocks, which may be on different devices.
  virtual void copy(StreamState& stream, void* to, const void* from, std::size_t bytes) = 0;

  // Records that `stream` uses a block of another stream, or of pinned memory: the block is not
  // reused before that use is done.
  virtual void record_use(Storage& storage, StreamState& stream) = 0;

  // Host memory that the device can access, for a tensor on the CPU.
  virtual Storage* new_pinned_storage(std::size_t bytes) = 0;
  virtual bool is_pinned(const void* host) = 0;
};

DeviceRuntime& runtime_of(DeviceType type);
DeviceRuntime& cpu_runtime();
CudaDeviceRuntime& cuda_runtime();

// Orders work given to `later` from now on after the work that `earlier` has been given so far.
void order_streams(StreamState& earlier, StreamState& later);

// Throws when the device does not exist, naming `op` and why.
void require_device(Device device, const char* op);

}  // namespace brrr
