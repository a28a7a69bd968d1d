// Watches the steps of a program, in which no line is changed for it: its compiled ones, and eager
// ones, which end where an optimizer updates parameters:
//
//   BRRR_REPORT=out.html ./my_program      # or out.json, or - for text on stdout
//
// The report is written when the program ends: for each step how often it was called, what
// the time between two calls goes to (the program's own code, the call, its kernels), the regime,
// the memory, the kernels by predicted time, and what the modes that the program did not use are
// predicted to take. Steps are timed as the program calls them: none is
// called for the report.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/diagnose.h>
#include <brrr/measure/html_report.h>
#include <brrr/measure/machine.h>
#include <brrr/measure/thread_sampler.h>

namespace brrr::measure {

// A mode that the program did not use for a step.
struct PredictedMode {
  Mode mode = Mode::eager;
  std::optional<core::StepTime> predicted = {};
  std::string why_not = {};  // the reason, where it was not predicted
};

// What was seen of a compiled step, or of an eager one.
struct WatchedStep {
  std::string name;
  Device device = {};
  std::vector<int> threads = {};  // that call it, from 1 on in the order of their first calls
  std::int64_t calls = 0, eager_calls = 0;      // eager: calls of a compiled step without a replay
  std::optional<CompiledEntry> entry = {};      // of a compiled step
  std::vector<core::LaunchCost> launches = {};  // of an eager step its calls with a kernel
  core::StepTime predicted = {};
  std::vector<PredictedMode> others = {};
  // From a call to the next one of this step on the same thread; in the call; in the program's own
  // code before it, from the end of the last call of a compiled step. On CUDA, where the host runs
  // ahead, means. Of an eager step: from the update before it to its own; the rest of it is one
  // call.
  Timing period = {}, in_call = {}, outside = {};
  std::optional<Diagnosis> diagnosis = {};  // of the call; on CUDA, of the period
  std::int64_t peak_bytes = 0;              // of all live tensors, until the step was looked at
  // Where the program's own code is before a call, or in an eager step, sampled; empty where there
  // is no time in it.
  std::vector<CodeLine> code = {};
  std::string why_no_code = {};             // the reason, where it could not be sampled
  std::optional<SampledPart> sampled = {};  // where sampling ended before the run

  // The share of the period that the program's own code takes. On CUDA, of what the device does
  // not work in; of an eager step, by its samples.
  double outside_share() const;
  Mode mode() const { return entry ? entry->mode : Mode::eager; }
  // How many times as fast the program is predicted to be with the step in another mode, which does
  // not change the time of its own code; 1: not by more than 5 %. None without both times.
  std::optional<double> gain_of(const PredictedMode& other) const;
};

// The steps that were called at least twice, those with the most time first.
std::string to_text(const std::vector<WatchedStep>& steps);
std::string to_json(const std::vector<WatchedStep>& steps, const Machine& machine);
Report to_report(const std::vector<WatchedStep>& steps, const Machine& machine,
                 const std::string& command);

// Called once, when the library is initialized: watches the process where BRRR_REPORT asks for it.
void watch_from_environment();

struct WatchOptions {
  double seconds = 60;                // in which every call of a compiled step is seen
  ThreadSampling sampling = {};       // of the thread whose step is the first to be looked at
  std::function<void()> looked = {};  // called each time that a step was looked at, or traced
};

// A watch of one's own, from construction on.
class Watch {
 public:
  explicit Watch(WatchOptions options = {});
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  std::vector<WatchedStep> steps() const;

  class State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace brrr::measure
