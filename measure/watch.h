// Watches the compiled steps of a program, in which no line is changed for it:
//
//   BRRR_REPORT=out.html ./my_program      # or out.json, or - for text on stdout
//
// The report is written when the program ends: for each compiled step how often it was called, what
// the time between two calls goes to (the program's own code, the call, its kernels), the regime,
// the memory, and the kernels by predicted time. Steps are timed as the program calls them: none is
// called for the report.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/diagnose.h>
#include <brrr/measure/html_report.h>
#include <brrr/measure/machine.h>

namespace brrr::measure {

// What was seen of a compiled step.
struct WatchedStep {
  std::string name;
  std::int64_t calls = 0, eager_calls = 0;  // eager: that could not be replayed
  std::optional<CompiledEntry> entry = {};  // none: it was not replayed often enough
  std::vector<core::LaunchCost> launches = {};
  // From a call to the next one of this step; in the call; in the program's own code before it,
  // from the end of the last call of a compiled step. On CUDA, where the host runs ahead, means.
  Timing period = {}, in_call = {}, outside = {};
  std::optional<Diagnosis> diagnosis = {};  // of the call; on CUDA, of the period
  std::int64_t peak_bytes = 0;              // of all live tensors, until the step was looked at

  // The share of the period that the program's own code takes. On CUDA, of what the device does
  // not work in.
  double outside_share() const;
};

// The steps that were called at least twice, those with the most time first.
std::string to_text(const std::vector<WatchedStep>& steps);
std::string to_json(const std::vector<WatchedStep>& steps, const Machine& machine);
Report to_report(const std::vector<WatchedStep>& steps, const Machine& machine,
                 const std::string& command);

// Called once, when the library is initialized: watches the process where BRRR_REPORT asks for it.
void watch_from_environment();

// A watch of one's own, from construction on.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  std::vector<WatchedStep> steps() const;

  class State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace brrr::measure
