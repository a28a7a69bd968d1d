// Streams and events. Work on one stream runs in order; two streams run concurrently, ordered only
// by events. The CPU's default stream runs inline, at the call; any other CPU stream is a queue on
// a thread of its own. CUDA streams are the driver's. Every function means the same on both.
#pragma once

#include <functional>
#include <memory>

#include <brrr/tensor/device.h>

namespace brrr {

namespace core {
struct StreamState;
struct EventState;
}  // namespace core
class Event;

class Stream {
 public:
  // A new stream; returned to a per-device pool when the last handle is destroyed.
  explicit Stream(Device device);
  static Stream default_of(Device device);
  static Stream current(Device device);

  Device device() const;
  int id() const;

  void synchronize() const;
  bool idle() const;
  Event record() const;
  // Work given to this stream from now on starts after the event.
  void wait(const Event& event) const;
  void enqueue(std::function<void()> work) const;

  friend bool operator==(const Stream& a, const Stream& b) { return a.state_ == b.state_; }

 private:
  friend class StreamGuard;
  friend struct core::StreamState;
  explicit Stream(std::shared_ptr<core::StreamState> state) : state_(std::move(state)) {}

  std::shared_ptr<core::StreamState> state_;
};

class Event {
 public:
  // `timed` events can be subtracted.
  explicit Event(Device device, bool timed = false);
  void record(const Stream& stream);
  void synchronize() const;
  bool done() const;
  double milliseconds_since(const Event& earlier) const;

 private:
  friend class Stream;
  Device device_;
  bool timed_;
  std::shared_ptr<core::EventState> state_;
};

// Makes a stream this thread's current one of its device while the guard exists.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream stream_;
  core::StreamState* before_;
};

// Waits for all work on the device; rethrows the first failure.
void synchronize(Device device);

}  // namespace brrr
