// Stream, Event and StreamGuard: the part that is the same on every device. The devices' own parts
// are in cpu_runtime.cpp and cuda_stream.cpp.
#include "brrr/tensor/stream.h"

#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_work.h"
#include "brrr/tensor/runtime.h"

namespace brrr {

void StreamState::enqueue(QueuedWork& work) {
  const auto finish = [](QueuedWork* done) { done->finish(); };
  const std::shared_ptr<QueuedWork> owned(&work, finish);
  enqueue([owned] { owned->run(); });
}

Stream::Stream(Device device) {
  require_device(device, "stream");
  state_ = runtime_of(device.type).new_stream(device);
}

Stream Stream::default_of(Device device) {
  require_device(device, "stream");
  StreamState* state = runtime_of(device.type).default_stream(device);
  return Stream(std::shared_ptr<StreamState>(std::shared_ptr<void>(), state));
}

Stream Stream::current(Device device) {
  require_device(device, "stream");
  StreamState* state = thread_context.stream(device);
  return state ? Stream(state->handle.lock()) : default_of(device);
}

Device Stream::device() const { return state_->device; }
int Stream::id() const { return state_->id; }
bool Stream::idle() const { return state_->idle(); }

void Stream::synchronize() const {
  refuse_ordering_in_trace("Stream::synchronize");
  const HostScope waiting(HostActivity::wait, "Stream::synchronize");
  state_->synchronize();
}

void Stream::enqueue(std::function<void()> work) const {
  refuse_ordering_in_trace("Stream::enqueue");
  if (!work) fail("[Stream::enqueue] expected a function, got none");
  state_->enqueue(std::move(work));
}

Event Stream::record() const {
  Event event(device());
  event.record(*this);
  return event;
}

void Stream::wait(const Event& event) const {
  refuse_ordering_in_trace("Stream::wait");
  event.state_->make_wait(*state_);
}

Event::Event(Device device, bool timed) : device_(device), timed_(timed) {
  require_device(device, "event");
  state_ = runtime_of(device.type).new_event(device, timed);
}

void Event::record(const Stream& stream) {
  refuse_ordering_in_trace("Event::record");
  if (stream.device() != device_) {
    fail("[event] expected a stream of {}, got one of {}", to_string(device_),
         to_string(stream.device()));
  }
  state_->record(*StreamState::of(stream));
}

void Event::synchronize() const {
  refuse_ordering_in_trace("Event::synchronize");
  const HostScope waiting(HostActivity::wait, "Event::synchronize");
  state_->synchronize();
}

bool Event::done() const { return state_->done(); }

double Event::milliseconds_since(const Event& earlier) const {
  if (!timed_ || !earlier.timed_) fail("[event] expected two timed events, got one without time");
  if (device_ != earlier.device_) {
    fail("[event] expected two events of one device, got {} and {}", to_string(device_),
         to_string(earlier.device_));
  }
  return state_->seconds_since(*earlier.state_) * 1e3;
}

StreamGuard::StreamGuard(Stream stream)
    : stream_(std::move(stream)), before_(thread_context.stream(stream_.device())) {
  thread_context.stream(stream_.device()) = stream_.id() == 0 ? nullptr : StreamState::of(stream_);
}

StreamGuard::~StreamGuard() { thread_context.stream(stream_.device()) = before_; }

void synchronize(Device device) {
  refuse_ordering_in_trace("synchronize");
  require_device(device, "synchronize");
  const OpScope scope("synchronize");
  const HostScope waiting(HostActivity::wait, "synchronize");
  runtime_of(device.type).synchronize(device);
}

}  // namespace brrr
