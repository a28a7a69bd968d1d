// Reports what the host does besides running ops, for timelines: allocations, nodes of the backward
// pass, traces, replays, waits, and entered modules. Without a listener a report costs one load.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace brrr {

enum class HostActivity : std::uint8_t { backward, allocation, replay, wait, trace, module };

// A kernel node of a replayed CUDA graph.
struct ReplayedKernel {
  std::string symbol;  // of the kernel; empty: unknown
  int launch = -1;     // of the compiled step's launches; -1: copies of arguments and results
  int lane = -1;       // of the plan, in which the launch was captured
  std::string ops;     // that it computes: "gelu + mul"
};
using ReplayedKernels = std::vector<ReplayedKernel>;  // in the order of capture

class HostListener {
 public:
  // Called on the reporting thread. `leave` gets the value that `enter` returned. Names of
  // allocations, waits and replays are literals; others are copied.
  virtual std::uint64_t enter(HostActivity what, const char* name) = 0;
  virtual void leave(std::uint64_t entered) = 0;
  // The next call that observers see on this thread is a fused kernel of these ops.
  virtual void next_op(const std::string& ops) = 0;
  // The replay that this thread is in launched a graph of these kernels.
  virtual void replays(std::shared_ptr<const ReplayedKernels> kernels) = 0;

 protected:
  ~HostListener() = default;  // a listener lives until the process ends: threads may be inside
};

inline constinit std::atomic<HostListener*> host_listener{nullptr};  // null: nobody

class HostScope {
 public:
  HostScope(HostActivity what, const char* name)
      : listener_(host_listener.load(std::memory_order_acquire)) {
    if (listener_) [[unlikely]]
      entered_ = listener_->enter(what, name);
  }
  // `name_of` is called while somebody listens.
  template <class NameOf>
  requires requires(NameOf name_of) { name_of(); }
  HostScope(HostActivity what, NameOf name_of)
      : listener_(host_listener.load(std::memory_order_acquire)) {
    if (listener_) [[unlikely]]
      entered_ = listener_->enter(what, std::string(name_of()).c_str());
  }
  ~HostScope() {
    if (listener_) [[unlikely]]
      listener_->leave(entered_);
  }
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  HostListener* listener_;
  std::uint64_t entered_ = 0;
};

}  // namespace brrr
