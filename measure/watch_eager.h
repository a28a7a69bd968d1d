// The eager steps of a program: from one update of parameters to the next, where no compiled step
// is called in between. A step is known by the optimizer that ends it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <brrr/dispatch/observe.h>
#include <brrr/measure/kernel_clock.h>
#include <brrr/measure/own_calls.h>
#include <brrr/measure/recent.h>
#include <brrr/measure/step_cost.h>
#include <brrr/measure/watch.h>

namespace brrr::measure {

// Indices of samples: from, to.
using SampleRange = std::pair<std::size_t, std::size_t>;

// Calls before a step is looked at, and those whose kernels are timed on the CPU.
inline constexpr std::int64_t kWarmCalls = 3, kFirstTimedCall = 8, kTimedCalls = 24;

// Of one thread.
class EagerSteps {
 public:
  struct Entry {
    WatchedStep step;
    Recent periods;
    std::optional<StepCost> cost;
    std::vector<double> in_kernels;
    std::vector<SampleRange> samples;

    // The regime, apart from the program's own code. On CUDA there is none: the time of the device
    // is not known.
    void judge();
  };

  // A step that took this long has ended.
  Entry& ended(const void* optimizer, Device device, double seconds, SampleRange samples);
  // The next step's calls are counted. `slowdown`: of the host.
  void count(double slowdown);
  bool is_counting() const { return cost_.has_value(); }
  double counts_from() const { return counts_from_; }
  // What is observed is not of an eager step.
  void interrupted();

  std::map<const void*, Entry>& entries() { return entries_; }

 private:
  std::map<const void*, Entry> entries_;
  Device device_;  // of the last step
  std::optional<RunningCost> cost_;
  double counts_from_ = 0;
  std::optional<KernelClock> clock_;
  std::optional<OwnCalls> own_;  // for the clock
  std::optional<core::Observing> observing_;
};

}  // namespace brrr::measure
