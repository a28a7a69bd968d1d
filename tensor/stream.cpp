// Stream, Event and StreamGuard: the part that is the same on every device. The devices' own parts
// are in cpu_runtime.cpp and cuda_stream.cpp.
#include "brrr/tensor/stream.h"

#include <fmt/format.h>

#include "brrr/tensor/error.h"
#include "brrr/tensor/runtime.h"

namespace brrr {

constinit thread_local StreamState* current_streams[2][kMaxDevices] = {};

constinit thread_local OrderRefusal refuse_ordering = nullptr;

namespace {

void require_ordering(const char* what) {
  if (refuse_ordering) [[unlikely]]
    refuse_ordering(what);
}

StreamState*& current_slot(Device device) {
  return current_streams[static_cast<int>(device.type)][device.index];
}

}  // namespace

void StreamState::enqueue(QueuedWork& work) {
  const auto finish = [](QueuedWork* done) { done->finish(); };
  const std::shared_ptr<QueuedWork> held(&work, finish);
  enqueue([held] { held->run(); });
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
  StreamState* state = current_slot(device);
  return state ? Stream(state->handle.lock()) : default_of(device);
}

void Stream::synchronize() const {
  require_ordering("Stream::synchronize");
  state_->synchronize();
}

void Stream::enqueue(std::function<void()> work) const {
  require_ordering("Stream::enqueue");
  if (!work) fail("[Stream::enqueue] expected a function, got none");
  state_->enqueue(std::move(work));
}

Event Stream::record() const {
  Event event(device());
  event.record(*this);
  return event;
}

void Stream::wait(const Event& event) const {
  require_ordering("Stream::wait");
  event.state_->make_wait(*state_);
}

Event::Event(Device device, bool timed) : device_(device), timed_(timed) {
  require_device(device, "event");
  state_ = runtime_of(device.type).new_event(device, timed);
}

void Event::record(const Stream& stream) {
  require_ordering("Event::record");
  if (stream.device() != device_) {
    fail(fmt::format("[event] expected a stream of {}, got one of {}", to_string(device_),
                     to_string(stream.device())));
  }
  state_->record(*stream.state());
}

void Event::synchronize() const {
  require_ordering("Event::synchronize");
  state_->synchronize();
}

bool Event::done() const { return state_->done(); }

double Event::milliseconds_since(const Event& earlier) const {
  if (!timed_ || !earlier.timed_) fail("[event] expected two timed events, got one without time");
  if (device_ != earlier.device_) {
    fail(fmt::format("[event] expected two events of one device, got {} and {}", to_string(device_),
                     to_string(earlier.device_)));
  }
  return state_->seconds_since(*earlier.state_) * 1e3;
}

StreamGuard::StreamGuard(Stream stream)
    : stream_(std::move(stream)), before_(current_slot(stream_.device())) {
  current_slot(stream_.device()) = stream_.id() == 0 ? nullptr : stream_.state();
}

StreamGuard::~StreamGuard() { current_slot(stream_.device()) = before_; }

void synchronize(Device device) {
  require_ordering("synchronize");
  require_device(device, "synchronize");
  const OpScope scope("synchronize");
  runtime_of(device.type).synchronize(device);
}

}  // namespace brrr
