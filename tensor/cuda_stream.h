// CUDA's streams and events. Both are taken from pools of their device and returned there. They are
// not destroyed before the device is shut down, so blocks and workspaces may refer to a stream.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include <brrr/tensor/cuda_api.h>
#include <brrr/tensor/stream_state.h>

namespace brrr::cu {

struct DeviceState;
struct StreamMemory;

struct CudaStream final : StreamState {
  CUstream handle = nullptr;
  DeviceState* on = nullptr;
  StreamMemory* memory = nullptr;  // its free blocks; during a capture, those of the graph's pool

  void synchronize() override;
  bool idle() override;
  // `work` may not call CUDA. Its captures are destroyed by a later call on the stream, not on the
  // driver's thread.
  using StreamState::enqueue;
  void enqueue(std::function<void()> work) override;
  void* native() const override { return handle; }
  bool capturing() const;
  // A failure of one owner's host work does not surface at the next owner's calls: it is thrown
  // when the device is synchronized while the stream has no owner.
  void change_owner(bool owned) noexcept;

 private:
  struct HostWork;
  static void run_host_work(void* work);
  void finish_host_work();  // destroys the items that have run
  void rethrow_host_failure();

  std::mutex host_mutex_;
  // An intrusive list: the driver's thread appends to it and must not allocate.
  HostWork* host_done_ = nullptr;
  HostWork** host_done_end_ = &host_done_;
  std::exception_ptr host_failure_;
  std::uint64_t owner_ = 0, failed_owner_ = 0;  // serial numbers; `host_failure_` is of the latter
  bool owned_ = true;
};

// Every stream and event of one device.
class StreamPool {
 public:
  explicit StreamPool(DeviceState& device) : device_(device) {}

  void start();  // makes the default stream
  CudaStream* default_stream() const { return default_; }
  std::shared_ptr<StreamState> take();
  std::vector<CudaStream*> all();

  CUevent take_event(bool timed);
  void give_event(CUevent event, bool timed) noexcept;

  void destroy() noexcept;  // the end of the device's state: nothing may be in flight

 private:
  CudaStream* make();

  DeviceState& device_;
  std::mutex mutex_;  // of the streams
  CudaStream* default_ = nullptr;
  std::vector<CudaStream*> streams_, free_;
  std::mutex events_mutex_;  // taken last: the allocator asks for events under its own lock
  std::vector<CUevent> events_[2];
  std::size_t events_made_[2] = {};
};

// Whether the work that a stream has been given, or that an event was recorded after, is done.
bool is_done(CUstream stream);
bool is_done(CUevent event);

std::unique_ptr<EventState> make_event(DeviceState& device, bool timed);

}  // namespace brrr::cu
