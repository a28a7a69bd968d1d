// A sampling profiler of the calling thread: a timer interrupts it every few hundred microseconds,
// and a signal handler records its stack. Nothing is instrumented, so code runs at full speed while
// it is not sampled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace brrr::measure {

struct HostSampling {
  // Between samples, on average; longer where an interruption takes more than 3 % of it.
  double period_seconds = 200e-6;
  std::size_t most_samples = 1 << 15;  // further samples are lost
};

// One interruption.
struct HostSample {
  std::int64_t ns = 0;      // thread time since the previous interruption
  std::uint32_t begin = 0;  // its stack in HostSamples::addresses, innermost frame first
  std::uint32_t end = 0;
  bool complete = false;  // the unwinder reached the code that runs the sampled work
  bool waits = false;     // in a system call; its stack was searched: frames may be missing or old
};

struct HostSamples {
  std::vector<HostSample> samples;
  // Addresses inside the running instructions, and inside the call instructions of outer frames.
  std::vector<std::uintptr_t> addresses;
  std::int64_t lost = 0;  // interruptions that did not fit in memory
  // The cost of an interruption, measured with an empty loop. Excluded from the samples' times.
  std::int64_t interruption_ns = 0;

  std::span<const std::uintptr_t> stack(const HostSample& sample) const {
    return std::span(addresses).subspan(sample.begin, sample.end - sample.begin);
  }
};

// Samples the thread that constructs it, while `run` runs. The constructor spends some milliseconds
// on measuring the cost of an interruption. Periods vary by a factor from 0.5 to 1.5, so that
// samples fall everywhere in a repeating step; an unfinished period continues in the next `run`.
// Only one sampler may exist in a process (the constructor throws otherwise), since it owns the
// handler of SIGPROF, which the destructor restores.
class HostSampler {
 public:
  explicit HostSampler(const HostSampling& sampling = {});
  ~HostSampler();
  HostSampler(const HostSampler&) = delete;
  HostSampler& operator=(const HostSampler&) = delete;

  // On the thread of the constructor. May be called several times.
  void run(const std::function<void()>& work);
  std::size_t count() const;  // of samples so far
  // What all runs recorded.
  HostSamples samples() const;

  struct State;  // what the signal handler works with

 private:
  std::unique_ptr<State> state_;
};

}  // namespace brrr::measure
