// What a watch keeps of the threads of a program, and of the compiled steps that they call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <brrr/dispatch/observe.h>
#include <brrr/measure/kernel_clock.h>
#include <brrr/measure/mode_predictions.h>
#include <brrr/measure/own_calls.h>
#include <brrr/measure/recent.h>
#include <brrr/measure/watch_eager.h>
#include <brrr/tensor/stream.h>

namespace brrr::measure {

// A call of a compiled step.
struct StepCall {
  core::CompiledStep* step = nullptr;
  double time = 0;
};

// Times the kernels of a call, from construction to `end`, on its thread: on the CPU by a clock
// around each, on CUDA by an event before and one after them.
class CallTimer {
 public:
  explicit CallTimer(Device device);
  void end();
  double seconds() const;  // after the end; on CUDA it waits for the device

 private:
  Device device_;
  std::optional<Event> before_, after_;
  KernelClock clock_;
  OwnCalls own_{clock_};
  std::optional<core::Observing> observing_;
};

struct WatchedThread {
  int number = 0;  // from 1 on, in the order in which threads call steps
  // When the last call of a compiled step returned, the last one that replayed, and the last
  // update.
  double returned = 0, replayed = 0, updated = 0;
  std::vector<StepCall> calls;       // that it is in, the outermost first
  std::unique_ptr<CallTimer> timer;  // of the outermost
  EagerSteps eager;
  int hidden_steps = 0;  // of whose calls it sees some only
};

// An entry of a compiled step.
struct WatchedEntry {
  WatchedStep step;
  std::vector<std::pair<const WatchedThread*, double>> last_called;  // by each of its threads
  Recent periods, calls, outside;
  std::vector<std::unique_ptr<CallTimer>> timed;
  std::vector<SampleRange> samples;
  std::shared_ptr<const TracedStep> traced;  // until its other modes are predicted

  void keep(std::shared_ptr<const TracedStep> of) {
    traced = std::move(of);
    step.others.clear();
  }
  double total_seconds() const { return static_cast<double>(step.calls) * step.period.median; }
  bool wants_timer() const {
    return step.entry && step.calls >= kFirstTimedCall &&
           timed.size() < static_cast<std::size_t>(kTimedCalls);
  }
  void look_at(const CompileReport& report, int index, std::vector<core::LaunchCost> launches);
  // A call on this thread.
  void add(WatchedThread& thread, double called, double now, bool was_timed);
};

struct WatchedCompiledStep {
  std::vector<std::unique_ptr<WatchedEntry>> entries;  // by index; null: none was replayed
  WatchedEntry* last = nullptr;                        // that was replayed
  // In calls that are not over, by their thread.
  struct Trace {
    std::shared_ptr<const TracedStep> calls;
    bool seen = true;  // the call
  };
  std::map<const WatchedThread*, Trace> traced;
  // Calls that are not seen: how many were planned, and the thread that makes them.
  std::uint32_t hidden = 0;
  WatchedThread* hidden_on = nullptr;
  int seen = 0;  // calls since some were not
  std::int64_t eager_calls = 0;
  int timed_in_vain = 0;  // calls that were timed for one entry, and replayed another

  WatchedEntry& entry(int index);
  // An entry whose kernels are yet to be timed; null: none, or its calls are too rare.
  const WatchedEntry* wants_timer() const;
  // Of calls that are not seen the entry is known where there is one.
  WatchedEntry* only_entry() const;
};

}  // namespace brrr::measure
