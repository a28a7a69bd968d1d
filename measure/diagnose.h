// Which regime a step is in (overhead, bandwidth, compute), with what shares, and what would help.
//
//   auto step = compile([&] { … }, {.mode = Mode::graph});
//   const measure::Diagnosis found = measure::diagnose(cuda(), step);
//   std::puts(to_string(found).c_str());  // "overhead-bound: 71 % overhead, 20 % bandwidth, …"
//   std::puts(found.advice.c_str());
//
// `gather` measures, `judge` decides. What disturbed the measurement makes the verdict less sure;
// there is none only where the device's time could not be measured. Both are stated.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <brrr/graph/compile.h>
#include <brrr/measure/calibrate.h>
#include <brrr/measure/idle.h>
#include <brrr/measure/step_cost.h>
#include <brrr/measure/thread_sampler.h>
#include <brrr/measure/timing.h>

namespace brrr::measure {

// Inefficient: kernels take more than 1.5 times what their bytes, FLOPs and launches need. User:
// the step's own code, outside of brrr, takes time in which no kernel runs.
enum class Regime : std::uint8_t { overhead, bandwidth, compute, inefficient, user };
inline constexpr std::array<const char*, 5> kRegimes = {"overhead", "bandwidth", "compute",
                                                        "inefficient", "user"};
inline const char* name_of(Regime regime) { return kRegimes[static_cast<std::size_t>(regime)]; }

// Shares of a step's time.
struct Shares {
  // The device waits for the host; on the CPU, time outside of kernels.
  double idle = 0;
  double launches = 0;   // latency of launches
  double transfers = 0;  // only copies or fills run, no kernel
  double small = 0;      // latency of kernels too small to reach the ceilings
  double bandwidth = 0, compute = 0;
  double inefficient = 0;  // of inefficient kernels, what they take beyond their need
  double user = 0;         // the step's own code, while no kernel runs

  double overhead() const { return idle + launches + transfers + small; }
  double of(Regime regime) const;
  double sum() const { return overhead() + bandwidth + compute + inefficient + user; }
  Regime largest() const;
  // The second largest regime, if its share is less than ten percentage points below the largest.
  std::optional<Regime> mixed_with() const;
};

// Shares by regime in whole percent that add up to those of the sum: where they do not when each is
// rounded, those with the largest fractions are rounded up.
using Percentages = std::array<int, kRegimes.size()>;
Percentages percentages_of(const Shares& shares);

// Another way to run the step: "graph", "fused min_cut".
struct Alternative {
  std::string name;
  core::StepTime predicted;
};

// Equal launches of a compiled step, measured.
struct MeasuredKernel {
  std::string name = {}, result = {};  // "matmul, add", "f32[64, 128]"
  std::string module = {}, phase = {};
  std::string line = {};  // "train.cpp:31 in loss and 2 more"; empty: unknown
  int launches = 1;
  double seconds = 0;  // of all of them, in a step
  double needed = 0;   // by the ceilings, for their bytes, FLOPs and launches

  // Beyond the need; 0: not more than a kernel may take.
  double excess() const { return seconds > kInefficient * needed ? seconds - needed : 0; }
  static constexpr double kInefficient = 1.5;
};

// The measurements and predictions that a verdict is based on.
struct Evidence {
  Device device;
  Mode mode = Mode::eager;
  Timing step = {};  // by the host's clock, from the call until the device has finished
  // On CUDA: host time until the call returns; device time of a step that was queued in advance.
  std::optional<Timing> host = {}, queued = {};
  std::optional<Timing> in_kernels = {};  // on the CPU
  UserCode user = {};
  StepCost cost = {};
  std::optional<GpuState> gpu = {};     // before and after the timings
  std::vector<std::string> drift = {};  // why ceilings no longer hold, by ceilings_drift
  // From a timeline, with the gaps in its records and the cost of recording.
  std::optional<Occupancy> occupancy = {};
  std::vector<std::string> missing = {};
  double perturbation = 0;
  std::string without_timeline = "no timeline was recorded";  // why there is no occupancy
  bool without_kernels = false;              // the timeline does not distinguish kernels
  std::vector<MeasuredKernel> kernels = {};  // the slowest first; empty: not measured one by one
  std::vector<std::string> further_problems = {};
  std::vector<Alternative> alternatives = {};
  // Modes that were measured and are not faster, so the advice does not name them.
  std::vector<Mode> ruled_out = {};
};

// The achieved rate, and the time of the work at the ceiling as a share of the step's.
struct Achieved {
  double rate = 0, share = 0;
};

// A part of the idle time as a share of the step.
struct IdleShare {
  IdleSource source;
  double share = 0;
};

enum class Confidence : std::uint8_t { sure, likely, unsure };
inline constexpr std::array<const char*, 3> kConfidences = {"sure", "likely", "unsure"};

struct Diagnosis {
  std::optional<Regime> regime;  // none: `problems` says why
  std::optional<Shares> shares;  // with the regime; they add up to 1
  // How sure the regime is: whether it stays the largest where the timings change within their
  // spread, and the share of bandwidth to compute within the error of default ceilings.
  Confidence confidence = Confidence::sure;
  // Limitations of the verdict, briefly: "basis: timings only".
  std::vector<std::string> caveats;
  std::vector<std::string> doubts;    // what disturbed the measurement, in a sentence each
  std::vector<std::string> problems;  // what could not be measured: there is no verdict
  // Possible disturbances that could not be checked: "other processes on the card:
  // libnvidia-ml.so.1 not found".
  std::vector<std::string> not_checked;
  std::string advice;  // what to do and by how much it helps, in a sentence; with the regime

  double step = 0;  // seconds
  // Seconds of device time; on the CPU, of kernels.
  std::optional<double> device_time;
  std::optional<double> busy() const {
    return device_time ? std::optional(*device_time / step) : std::nullopt;
  }
  Achieved flops, bytes;
  // The time of the kernels' work at the ceilings, as a share of the device time.
  std::optional<double> efficiency;
  // The kernel that takes most beyond its need; none: no kernel does, or none was measured alone.
  std::optional<MeasuredKernel> slowest;
  std::vector<CodeLine> code;  // where the step's own code is, with shares of the step
  // Busy time and idle gaps with their causes, from a timeline; none: `unattributed` says why.
  std::optional<Occupancy> occupancy;
  std::string unattributed;
  // If the occupancy is left out only since recording slowed the step too much: the idle time by
  // the untraced timings, divided among the host's calls in the recording's proportions.
  std::vector<IdleShare> idle_estimate;
  // Whether idle time and transfers come from a timeline; else from timings only.
  bool by_timeline() const { return occupancy.has_value(); }
};

struct DiagnoseOptions {
  const Timeline* timeline = nullptr;
  std::vector<Alternative> alternatives = {};
  Sampling sampling = {};
};

// Runs the step some hundred times.
Evidence gather(Device device, const std::function<void()>& step,
                const DiagnoseOptions& options = {});
Diagnosis judge(const Evidence& evidence);
Diagnosis diagnose(Device device, const std::function<void()>& step,
                   const DiagnoseOptions& options = {});

// Of a compiled step without arguments.
template <class F>
requires std::invocable<F&> Diagnosis diagnose(Device device, Compiled<F>& step,
                                               const DiagnoseOptions& options = {}) {
  return diagnose(device, std::function<void()>([&step] { step(); }), options);
}

// Adds timings to evidence that has the step's time: on CUDA of the host and of queued steps, on
// the CPU of kernels; and the step's own code, whose time is added to the predictions of its cost.
void time_device(Device device, const std::function<void()>& step, int samples, Evidence& evidence);
void add_timeline(const Timeline& timeline, Evidence& evidence);

// "4 x matmul, add of f32[64, 128] in mlp.layers.1, backward"
std::string to_string(const MeasuredKernel& kernel);

std::string bound_text(Regime regime);  // "overhead-bound", "bound by inefficient kernels"
// "overhead-bound (71 %)", "mixed (overhead 43 %, compute 41 %; twice the batch disagrees)", or
// "without a verdict".
std::string regime_text(const Diagnosis& diagnosis);
// "overhead-bound: 71 % overhead, 20 % bandwidth, 9 % compute", or why there is no verdict.
std::string to_string(const Diagnosis& diagnosis);

// --- Parts of judge ---

// Why there is no verdict; empty: there is one.
std::vector<std::string> problems_of(const Evidence& evidence);
// What makes it less sure.
std::vector<std::string> doubts_of(const Evidence& evidence);
// The shares; also defined for evidence with problems, if the device was timed.
Shares shares_of(const Evidence& evidence);
std::string advice_on(const Evidence& evidence, const Shares& shares);

}  // namespace brrr::measure
