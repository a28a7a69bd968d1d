// Where the calling thread is, sampled by a thread of its own in intervals that the caller begins
// and ends. The program need not be written for it: a thread that runs is interrupted by SIGPROF
// and walks its stack; one that waits in a system call is left alone, since an interrupted call may
// return early, and its stack is searched for return addresses.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <brrr/measure/host_samples.h>

namespace brrr::measure {

struct ThreadSampling {
  double period_seconds = 1e-3;     // between samples, on average
  std::size_t most_samples = 2000;  // sampling ends then
  double seconds = 20;              // or after this time
};

// The part of a run that samples stand for, where sampling ended before it.
struct SampledPart {
  double seconds = 0, of = 0;  // from the begin of sampling: until its end; until now
  std::string ended = {};      // why: "it has 2000 samples"
};

class ThreadSampler {
 public:
  // Samples the calling thread. Has a `problem` where that cannot be: SIGPROF is the program's
  // own, or the system does not tell what a thread does.
  explicit ThreadSampler(const ThreadSampling& sampling = {});
  ~ThreadSampler();
  ThreadSampler(const ThreadSampler&) = delete;
  ThreadSampler& operator=(const ThreadSampler&) = delete;

  // On the sampled thread: an interval.
  void begin();
  std::size_t end();  // samples until now
  // What all intervals have, each for one period; those that wait say so.
  HostSamples samples() const;
  const std::string& problem() const;
  std::optional<SampledPart> part() const;  // none: it still samples

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// A line of the program's own code, outside of brrr, of the C++ runtime and of the system.
struct CodeLine {
  std::string place;  // "train.cpp:31 in load"
  bool calls_brrr = false;
  bool waits = false;  // in the system, called from there: reading, sleeping, another thread
  double share = 0;    // of the samples
  std::int64_t samples = 0;

  bool operator==(const CodeLine&) const = default;
};

// "waiting at train.cpp:31 in load"
std::string to_string(const CodeLine& line);

// The lines that called what the samples are in, those with most samples first. Samples that no
// line of the program called are counted in the shares alone.
std::vector<CodeLine> code_lines(const HostSamples& of, std::span<const HostSample> samples);

// Code outside of brrr that a step runs.
struct UserCode {
  double share = 0;                  // of the host's time
  std::vector<CodeLine> lines = {};  // of it
  std::string problem = {};          // why it was not sampled, or may be incomplete
};

// Samples `call`, which runs a step, again and again for about `seconds`.
UserCode user_code_in(const std::function<void()>& call, double seconds);

}  // namespace brrr::measure
