// The interfaces of streams and events that the two kinds of device implement.
#pragma once

#include <functional>
#include <memory>

#include <brrr/tensor/device.h>
#include <brrr/tensor/stream.h>

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
struct core::StreamState {
  Device device;
  int id = 0;                         // 0 is the device's default stream
  std::weak_ptr<StreamState> handle;  // of `Stream::current`; empty for default streams

  static StreamState* of(const Stream& stream) { return stream.state_.get(); }

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

struct core::EventState {
  virtual ~EventState() = default;
  virtual void record(StreamState& stream) = 0;
  virtual void make_wait(StreamState& stream) = 0;  // `stream` waits, the host does not
  virtual void synchronize() = 0;
  virtual bool done() = 0;
  virtual double seconds_since(EventState& earlier) = 0;
};

}  // namespace brrr
