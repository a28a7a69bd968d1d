// Tells who measures a program which compiled steps it calls, and where an eager step ends. Without
// a listener a call costs one load.
#pragma once

#include <atomic>

#include <brrr/graph/compile.h>

namespace brrr::graph {
struct Graph;
}

namespace brrr::core {

class ReplayListener {
 public:
  // On the thread of the call. `entry`: the index of the entry that was replayed; -1: the call ran
  // eagerly, or threw.
  virtual void called(CompiledStep& step) = 0;
  virtual void returned(CompiledStep& step, int entry) = 0;
  // Asked before a call; true: neither `called` nor `returned` is for it.
  virtual bool leaves_out(CompiledStep&) { return false; }
  // During a call that traces the step; `calls` are as traced, before any pass.
  virtual void traced(CompiledStep&, const graph::Graph& /*calls*/, const CompileOptions&) {}
  // Another step may have its address from now on.
  virtual void destroyed(CompiledStep&) {}
  // An optimizer has updated parameters on this device, in no compiled step.
  virtual void updated(const void* /*optimizer*/, Device) {}

 protected:
  ~ReplayListener() = default;  // a listener lives until the process ends: threads may be inside
};

inline constinit std::atomic<ReplayListener*> replay_listener{nullptr};  // null: nobody

template <class F>
void tell_listener(F of) {
  if (ReplayListener* const listener = replay_listener.load(std::memory_order_acquire))
    of(*listener);
}

// A call of a compiled step.
class ReplayScope {
 public:
  explicit ReplayScope(CompiledStep& step)
      : listener_(replay_listener.load(std::memory_order_acquire)), step_(step) {
    if (!listener_) [[likely]]
      return;
    if (listener_->leaves_out(step)) {
      listener_ = nullptr;
    } else {
      listener_->called(step_);
    }
  }
  ~ReplayScope() {
    if (listener_) [[unlikely]]
      listener_->returned(step_, entry);
  }
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;

  int entry = -1;  // of the replay

 private:
  ReplayListener* listener_;
  CompiledStep& step_;
};

}  // namespace brrr::core
