// Records what the host does: ops as an Observer, all else as a HostListener. A process has one
// recorder, which is never destroyed. With BRRR_NVTX=1 it also pushes NVTX ranges, even while it
// does not record.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <brrr/dispatch/observe.h>
#include <brrr/measure/device_recorder.h>
#include <brrr/measure/timeline.h>
#include <brrr/tensor/host_work.h>

namespace brrr::measure {

// The graph that a replay launched, and the span of the replay.
struct Replay {
  std::size_t span = 0;
  std::shared_ptr<const ReplayedKernels> kernels;
};

struct HostRecord {
  std::vector<HostSpan> spans;                // in the order in which they began
  std::vector<std::uint32_t> native_threads;  // by HostSpan::thread
  std::vector<MemorySample> memory;
  std::vector<Replay> replays;
};

// Held for some instructions per span, mostly without contention. A span costs 105 ns with it, 117
// with a mutex.
class SpinLock {
 public:
  void lock() {
    while (taken_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { taken_.clear(std::memory_order_release); }

 private:
  std::atomic_flag taken_;
};

class HostRecorder final : public Observer, public HostListener {
 public:
  static HostRecorder& instance();

  // `recorder` is notified of the spans that issue device work; may be null. Throws during another
  // recording.
  void start(Device device, DeviceRecorder* recorder);
  HostRecord stop();
  // A span of the caller's, "step".
  std::uint64_t begin_step();
  void end_step(std::uint64_t ticket) { leave(ticket); }

  // Pushes NVTX ranges from now on, also without a recording.
  void always_push_ranges();

  void before(const Call& call) override;
  void after(const Call& call, std::span<const Tensor> outputs) override;
  std::uint64_t enter(HostActivity what, const char* name) override;
  void leave(std::uint64_t ticket) override;
  void next_op(const std::string& ops) override;
  void replays(std::shared_ptr<const ReplayedKernels> kernels) override;

 private:
  // The state of a thread.
  struct Thread {
    std::thread::id id;
    int index = 0;
    std::vector<const char*> modules;
    int in_replays = 0;
    std::vector<std::size_t> replays;  // their open spans
    bool in_op = false;
    std::optional<std::size_t> op;   // its span
    DeviceRecorder* told = nullptr;  // the recorder that was notified of that span
    const char* next_op = nullptr;
  };
  // A span whose names are interned.
  struct Raw {
    const char* name;
    HostWork work;
    int thread;
    std::int64_t start_ns, end_ns;
    const char* where;
  };

  HostRecorder() = default;
  void attach();
  void detach();
  Thread& this_thread();
  const char* interned(std::string_view name);
  std::size_t open(Thread& thread, const char* name, HostWork work);
  void close_op(Thread& thread, std::int64_t end_ns);

  SpinLock lock_;
  std::optional<Observing> observing_;
  bool recording_ = false, ranges_ = false;
  std::uint64_t recordings_ = 0;  // in tickets, so that those of earlier recordings are ignored
  Device device_;
  DeviceRecorder* recorder_ = nullptr;
  std::set<std::string, std::less<>> names_;
  std::vector<std::unique_ptr<Thread>> threads_;
  Thread* last_ = nullptr;
  std::vector<std::uint32_t> native_threads_;
  std::vector<Raw> spans_;
  std::vector<MemorySample> memory_;
  std::vector<Replay> replays_;
};

}  // namespace brrr::measure
