#include "brrr/tensor/cuda_stream.h"

#include "brrr/tensor/cuda_faults.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/fail.h"

namespace brrr::cu {
namespace {

[[noreturn]] void refuse(const char* what) {
  fail("[{}] not possible while the stream is being captured into a graph", what);
}

}  // namespace

struct CudaStream::HostWork {
  CudaStream* stream;
  std::function<void()> work;
  std::uint64_t owner = 0;
  HostWork* next = nullptr;
};

bool CudaStream::capturing() const {
  if (on->captures.load(std::memory_order_relaxed) == 0) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  BRRR_CUDA(cuStreamIsCapturing, handle, &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void CudaStream::synchronize() {
  make_current(*on);
  if (capturing()) refuse("synchronize");
  BRRR_CUDA(cuStreamSynchronize, handle);
  finish_host_work();
  rethrow_host_failure();
  check_faults(device);
}

bool CudaStream::idle() {
  make_current(*on);
  if (capturing()) refuse("idle");
  return is_done(handle);
}

bool is_done(CUstream stream) {
  const CUresult code = BRRR_CUDA_TRY(cuStreamQuery, stream);
  if (code != CUDA_ERROR_NOT_READY) check<Fn::k_cuStreamQuery>(code);
  return code == CUDA_SUCCESS;
}

bool is_done(CUevent event) {
  const CUresult code = BRRR_CUDA_TRY(cuEventQuery, event);
  if (code != CUDA_ERROR_NOT_READY) check<Fn::k_cuEventQuery>(code);
  return code == CUDA_SUCCESS;
}

void CudaStream::enqueue(std::function<void()> work) {
  make_current(*on);
  if (capturing()) refuse("enqueue");
  finish_host_work();
  auto item = std::make_unique<HostWork>(HostWork{.stream = this, .work = std::move(work)});
  {
    std::lock_guard lock(host_mutex_);
    item->owner = owner_;
  }
  BRRR_CUDA(cuLaunchHostFunc, handle, run_host_work, item.get());
  item.release();
}

void CudaStream::run_host_work(void* pointer) {
  auto* item = static_cast<HostWork*>(pointer);
  CudaStream& stream = *item->stream;
  bool skip = false;
  {
    std::lock_guard lock(stream.host_mutex_);
    skip = stream.host_failure_ && stream.failed_owner_ == item->owner;
  }
  std::exception_ptr failure;
  if (!skip) {
    try {
      item->work();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  std::lock_guard lock(stream.host_mutex_);
  if (failure) {
    stream.host_failure_ = std::move(failure);
    stream.failed_owner_ = item->owner;
  }
  *stream.host_done_end_ = item;
  stream.host_done_end_ = &item->next;
}

void CudaStream::finish_host_work() {
  HostWork* done = nullptr;
  {
    std::lock_guard lock(host_mutex_);
    done = std::exchange(host_done_, nullptr);
    host_done_end_ = &host_done_;
  }
  while (done) delete std::exchange(done, done->next);
}

void CudaStream::rethrow_host_failure() {
  std::exception_ptr failure;
  {
    std::lock_guard lock(host_mutex_);
    if (!owned_ || failed_owner_ == owner_) failure = std::exchange(host_failure_, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

void CudaStream::change_owner(bool owned) noexcept {
  std::lock_guard lock(host_mutex_);
  ++owner_;
  owned_ = owned;
}

// --- Streams ---

CudaStream* StreamPool::make() {
  streams_.reserve(streams_.size() + 1);
  free_.reserve(streams_.size() + 1);  // so that giving a stream back cannot fail
  auto stream = std::make_unique<CudaStream>();
  stream->device = Device(DeviceType::cuda, device_.index);
  stream->id = static_cast<int>(streams_.size());
  stream->on = &device_;
  BRRR_CUDA(cuStreamCreate, &stream->handle, CU_STREAM_NON_BLOCKING);
  try {
    stream->memory = device_.allocator.new_memory(stream.get());
  } catch (...) {
    BRRR_CUDA_TRY(cuStreamDestroy, stream->handle);
    throw;
  }
  streams_.push_back(stream.get());
  return stream.release();
}

void StreamPool::start() { default_ = make(); }

std::shared_ptr<StreamState> StreamPool::take() {
  make_current(device_);
  CudaStream* stream = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (free_.empty()) {
      stream = make();
    } else {
      stream = free_.back();
      free_.pop_back();
    }
  }
  stream->change_owner(true);
  std::shared_ptr<StreamState> handle(stream, [this](StreamState* state) {
    auto* given = static_cast<CudaStream*>(state);
    given->change_owner(false);
    std::lock_guard lock(mutex_);
    free_.push_back(given);
  });
  stream->StreamState::handle = handle;
  return handle;
}

std::vector<CudaStream*> StreamPool::all() {
  std::lock_guard lock(mutex_);
  return streams_;
}

// --- Events ---

CUevent StreamPool::take_event(bool timed) {
  std::lock_guard lock(events_mutex_);
  std::vector<CUevent>& events = events_[timed];
  if (!events.empty()) {
    const CUevent event = events.back();
    events.pop_back();
    return event;
  }
  events.reserve(++events_made_[timed]);  // so that giving it back cannot fail
  CUevent event = nullptr;
  BRRR_CUDA(cuEventCreate, &event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
  return event;
}

void StreamPool::give_event(CUevent event, bool timed) noexcept {
  std::lock_guard lock(events_mutex_);
  events_[timed].push_back(event);
}

void StreamPool::destroy() noexcept {
  std::scoped_lock lock(mutex_, events_mutex_);
  for (auto& events : events_) {
    for (CUevent event : events) BRRR_CUDA_TRY(cuEventDestroy, event);
    events.clear();
  }
  for (CudaStream* stream : streams_) {
    BRRR_CUDA_TRY(cuStreamDestroy, stream->handle);
    stream->handle = nullptr;
  }
  streams_.clear();
  free_.clear();
}

namespace {

// An event of the driver, returned to its pool when the last reference is dropped. Waits that
// another thread has yet to issue hold a reference.
struct SharedEvent {
  DeviceState& on;
  bool timed;
  CUevent handle;

  SharedEvent(DeviceState& device, bool with_time)
      : on(device), timed(with_time), handle(device.streams.take_event(with_time)) {}
  ~SharedEvent() { on.streams.give_event(handle, timed); }
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  void synchronize() {
    make_current(on);
    BRRR_CUDA(cuEventSynchronize, handle);
  }
};

class CudaEvent final : public EventState {
 public:
  CudaEvent(DeviceState& device, bool timed) : on_(device), timed_(timed) {}

  void record(StreamState& state) override {
    auto& stream = static_cast<CudaStream&>(state);
    make_current(on_);
    // A CPU queue may have yet to wait for the previous recording, so that event is not reused.
    auto event =
        event_ && event_.use_count() == 1 ? event_ : std::make_shared<SharedEvent>(on_, timed_);
    BRRR_CUDA(cuEventRecord, event->handle, stream.handle);
    event_ = std::move(event);
  }
  void make_wait(StreamState& state) override {
    if (!event_) return;
    if (state.device.is_cpu()) {
      if (state.id == 0) {
        synchronize();  // the default stream is the caller itself
      } else {
        state.enqueue([event = event_] { event->synchronize(); });
      }
      return;
    }
    auto& stream = static_cast<CudaStream&>(state);
    make_current(*stream.on);
    BRRR_CUDA(cuStreamWaitEvent, stream.handle, event_->handle, 0);
  }
  void synchronize() override {
    if (!event_) return;
    event_->synchronize();
    check_faults(Device(DeviceType::cuda, on_.index));
  }
  bool done() override {
    if (!event_) return true;
    make_current(on_);
    return is_done(event_->handle);
  }
  double seconds_since(EventState& state) override {
    auto& earlier = static_cast<CudaEvent&>(state);
    if (!event_ || !earlier.event_)
      fail("[event] expected two recorded events, got one never recorded");
    synchronize();
    earlier.synchronize();
    float milliseconds = 0;
    BRRR_CUDA(cuEventElapsedTime, &milliseconds, earlier.event_->handle, event_->handle);
    return milliseconds * 1e-3;
  }

 private:
  DeviceState& on_;
  bool timed_;
  std::shared_ptr<SharedEvent> event_;
};

}  // namespace

std::unique_ptr<EventState> make_event(DeviceState& device, bool timed) {
  make_current(device);
  return std::make_unique<CudaEvent>(device, timed);
}

}  // namespace brrr::cu
