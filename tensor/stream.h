// Streams and events. Work on one stream runs in order; two streams run concurrently, ordered only
// by events. The CPU's default stream runs inline, at the call; any other CPU stream is a queue on
// a thread of its own. CUDA streams are the driver's. Every function means the same on both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <brrr/tensor/device.h>

namespace brrr {

// Work that is queued without an allocation; `finish` returns it to its owner.
struct QueuedWork {
  QueuedWork* next = nullptr;  // for the owner
  virtual void run() = 0;
  // Called once, after `run` or instead of it.
  virtual void finish() noexcept = 0;

 protected:
  ~QueuedWork() = default;
};

// The interface of one stream of either kind of device. Never destroyed: blocks of memory and
// cached workspaces refer to it.
struct StreamState {
  Device device;
  int id = 0;                         // 0 is the device's default stream
  std::weak_ptr<StreamState> handle;  // of `Stream::current`; empty for default streams

  virtual ~StreamState() = default;
  virtual void synchronize() = 0;
  virtual bool idle() = 0;
  // Runs `work` in this stream's order, on a host thread. An exception surfaces at the next
  // synchronize of the stream or its device; until then the stream skips later work, and so does a
  // stream that waits for an event recorded after the failure (on CUDA only later host work is
  // skipped). The CPU's default stream runs `work` before it returns, and throws at once.
  virtual void enqueue(std::function<void()> work) = 0;
  // The same without an allocation where the stream can; throws with the work already finished.
  virtual void enqueue(QueuedWork& work);
  virtual void* native() const { return nullptr; }  // the CUstream
};

class Event;

class Stream {
 public:
  // A new stream; returned to a per-device pool when the last handle is destroyed.
  explicit Stream(Device device);
  static Stream default_of(Device device);
  static Stream current(Device device);

  Device device() const { return state_->device; }
  int id() const { return state_->id; }
  StreamState* state() const { return state_.get(); }

  void synchronize() const;
  bool idle() const { return state_->idle(); }
  Event record() const;
  // Work given to this stream from now on starts after the event.
  void wait(const Event& event) const;
  void enqueue(std::function<void()> work) const;

  friend bool operator==(const Stream& a, const Stream& b) { return a.state_ == b.state_; }

 private:
  friend class StreamGuard;
  explicit Stream(std::shared_ptr<StreamState> state) : state_(std::move(state)) {}

  std::shared_ptr<StreamState> state_;
};

struct EventState {
  virtual ~EventState() = default;
  virtual void record(StreamState& stream) = 0;
  virtual void make_wait(StreamState& stream) = 0;  // `stream` waits, the host does not
  virtual void synchronize() = 0;
  virtual bool done() = 0;
  virtual double seconds_since(EventState& earlier) = 0;
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
  std::shared_ptr<EventState> state_;
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
  StreamState* before_;
};

// Waits for all work on the device; rethrows the first failure.
void synchronize(Device device);

// Set while this thread traces: stream waits and synchronization call it with their name, and it
// throws, for a wait during a trace has no effect on the compiled step. Null otherwise.
using OrderRefusal = void (*)(const char* what);
extern constinit thread_local OrderRefusal refuse_ordering;

// The current stream of a device for this thread; null means the default one. Indexed by type and
// index.
inline constexpr int kMaxDevices = 16;
extern constinit thread_local StreamState* current_streams[2][kMaxDevices];

inline StreamState* current_cpu_queue() { return current_streams[0][0]; }

}  // namespace brrr
