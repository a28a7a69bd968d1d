// A step of any program in several ways, on the same work: eager, replayed, fused, under policies
// of rematerialization, or whatever candidates are named.
//
//   const measure::Comparison found = measure::compare("my net", [&](Mode mode, Remat remat) {
//     auto net = std::make_shared<Net>();
//     return compile([net] { return net->train(); }, {.mode = mode, .remat = remat});
//   });
//   std::fputs(measure::to_text(found).c_str(), stdout);
//   return found.status();
//
// Each candidate is made anew, with the same seed, so that all of them compute the same losses.
// They are timed in turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <brrr/measure/agreement.h>
#include <brrr/measure/batch_doubling.h>
#include <brrr/measure/diagnose.h>
#include <brrr/measure/modes.h>
#include <brrr/measure/step.h>
#include <brrr/measure/timeline.h>
#include <brrr/measure/timing.h>
#include <brrr/measure/variations.h>

namespace brrr::measure {

// Makes the step in a mode and under a policy, with parameters and state of its own.
using MakeStep = std::function<Step(Mode mode, Remat remat)>;

// Named by what it changes: "adam", "lion".
struct Candidate {
  std::string name;
  std::function<Step()> make;
};

// What is compared, for documents: {"width", 256}.
using Fact =
    std::pair<std::string, std::variant<bool, std::int64_t, std::uint64_t, double, std::string>>;

struct CompareOptions {
  std::optional<Device> device = {};  // none: that of the step's calls
  std::int64_t steps = 20;            // whose losses are compared
  double seconds = 0.5;               // of timed steps of a candidate
  std::uint64_t seed = 0;             // of each candidate
  Remat remat = Remat::none();        // of the compiled modes
  // Instead: every value kept, each policy, and a budget of half of what `full` saves.
  bool all_policies = false;
  // What the losses of fused steps may differ by, relative to the largest; none: by the types.
  std::optional<double> tolerance = {};
  Rounding rounding = Rounding::eager;  // that MakeStep uses in fused steps
  std::optional<DType> dtype = {};      // of the step's values; none: that of the loss
  MakeStep doubled = {};                // the step at twice the batch
  bool check_doubled = true;            // each mode at twice the batch is a check of its verdict
  // Changes of the step that may be faster, such as another type of its values. They are tried on
  // the fastest mode, with those that are known for the device and with twice the batch.
  std::vector<std::pair<std::string, MakeStep>> variations = {};
  bool tries = true;           // false: nothing but modes and policies is tried
  std::string describes = {};  // "batch 128, width 256": printed beside the name
  std::vector<Fact> facts = {};
  std::function<void(const std::string& what)> progress = [](const std::string&) {};
  // Asked between steps: true ends the comparison, of what was measured so far.
  std::function<bool()> stop = {};
};

// What was measured of a step.
struct StepResult {
  std::vector<double> losses = {};  // before each step
  std::optional<Timing> step = {};
  std::optional<StepCost> cost = {};
  std::optional<CompiledEntry> compiled = {};  // the first entry that it replays
};

struct Side : StepResult {
  std::string name;  // "fused", "fused full"
  Mode mode = Mode::eager;
  std::string remat = "none";
  Agreement agreement = {};
  // On CUDA:
  std::optional<Timing> host = {};    // until the call of a step returns
  std::optional<Timing> device = {};  // device time of a step that was queued in advance
  Diagnosis diagnosis = {};
  std::optional<BatchDoubling> doubling = {};   // if asked for
  std::optional<Timeline> timeline = {};        // recorded after everything was timed
  std::vector<core::LaunchCost> launches = {};  // of a compiled step, as predicted
  // Measured times of launches, where the timeline has them.
  std::vector<std::optional<double>> launch_seconds = {};
  std::optional<core::LiveBytes> live = {};  // under a policy of rematerialization

  // The fraction of a step in which the device waits for the host.
  std::optional<double> idle() const {
    if (!device || !step) return std::nullopt;
    return std::max(0.0, 1 - device->median / step->median);
  }
};

struct Comparison {
  std::string name, describes;
  std::vector<Fact> facts;
  Device device;
  Rounding rounding = Rounding::eager;
  std::vector<Side> sides;                // the first one is the base
  std::optional<std::size_t> divergence;  // the first step with a loss that is not finite
  std::vector<Tried> tried = {};          // on the fastest side, the most helpful one first
  std::string interrupted = {};           // "at 2 of 7: graph"; empty: it was not stopped

  const Side& fastest() const;
  // The first mode whose losses are not the base's; null: there is none.
  const Side* disagreement() const;
  double speed_up(const Side& side) const { return sides.front().step->median / side.step->median; }
  std::vector<ComparedMode> modes() const;
  // What is wrong with the losses, in a sentence; empty: nothing.
  std::string problem() const;
  int status() const { return problem().empty() ? 0 : 1; }  // for main() to return
};

// Eager, graph and fused steps.
Comparison compare(std::string name, const MakeStep& make, const CompareOptions& options = {});
// The candidates, relative to the first one.
Comparison compare(std::string name, std::vector<Candidate> candidates,
                   const CompareOptions& options = {});

// How steps are timed for about `seconds`.
Sampling sampling_for(double seconds);

}  // namespace brrr::measure
