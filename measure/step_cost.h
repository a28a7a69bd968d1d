// The cost of a step: kernels, FLOPs, bytes moved, peak memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <brrr/dispatch/cost.h>
#include <brrr/graph/ceilings.h>
#include <brrr/graph/compile.h>
#include <brrr/graph/replay_listener.h>
#include <brrr/measure/eager_calls.h>
#include <brrr/measure/timing.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

// FLOPs of matrix products by graph::ProductType.
using ProductFlops = std::array<std::int64_t, graph::kProductTypes.size()>;

struct StepCost : core::Cost {
  std::vector<CompiledEntry> replayed;  // entries of compiled steps, in order
  std::int64_t kernels = 0;             // launches on CUDA, op calls with a kernel on the CPU
  std::int64_t peak_bytes = 0;          // of all live memory, allocated before the step or in it
  EagerCalls eager;                     // outside of replays
  // Made before the step is timed. An eager step is predicted at the host's speed at that time: a
  // probe measures the host's slowdown since the calibration.
  double host_slowdown = 1;
  core::StepTime predicted;
  // The same for the host's speed while the step was timed (`predict_at`).
  double timed_slowdown = 1;
  core::StepTime predicted_at_timed_speed;
  // The part of both that is the step's own code, as measured.
  std::int64_t user_ps = 0;
  core::StepTime on_device;        // by ceilings: GPU time if the GPU never waits for the host
  core::StepTime eager_on_device;  // the part of it outside of replays
  std::optional<core::StepTime> timed_on_device = {};  // the same of an eager step, by predict_from
  core::Roofline roofline;
  // Where calls state the type: not of fused kernels.
  ProductFlops product_flops{};
  bool calibrated = false;
  std::string why_defaults = {};  // of ceilings that are not measured; empty: there is no file
};

// The mode of what the step replays; eager, if it replays nothing.
Mode mode_of(const StepCost& cost);

// CUDA calls that launch a kernel, and those of them that are calls of cuBLASLt.
struct CudaLaunches {
  std::int64_t all = 0, library = 0;
};

// Runs the step once. What it replays is costed by the entries of its compiled steps, all else call
// by call.
StepCost cost_of_step(Device device, const std::function<void()>& step);

// The same of what a program calls between `begin` and `end`. Backward passes are not counted
// during another recording.
class RunningCost {
 public:
  enum class Threads : std::uint8_t { all, own };  // whose calls count; own: of the one that begins

  // Without a slowdown of the host, probes its speed.
  explicit RunningCost(Device device, Threads threads = Threads::all,
                       std::optional<double> slowdown = {});
  ~RunningCost();
  RunningCost(const RunningCost&) = delete;
  RunningCost& operator=(const RunningCost&) = delete;

  void begin();
  void end();
  core::ReplayListener& listener();
  // `launches`: on CUDA, if they were counted.
  StepCost cost(std::optional<CudaLaunches> launches = {}) const;
  // The calls with a kernel outside of replays, in their order, without module and phase.
  std::vector<core::LaunchCost> calls() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The cost of a replay, without running it.
StepCost cost_of_entry(const CompiledEntry& entry, std::span<const core::LaunchCost> launches);

// Predicts an eager step again, for the host's slowdown while it was timed. `predicted` is kept.
void predict_at(double timed_slowdown, Device device, StepCost& cost);

// Predicts an eager step again, from the kernels of its replay in graph mode, which are the same.
void predict_from(std::span<const core::LaunchCost> kernels, Device device, StepCost& cost);
// The same for a host that is slower by a known factor.
void predict_from(std::span<const core::LaunchCost> kernels, double slowdown, Device device,
                  StepCost& cost);

// The share of a step's time that its kernels take on the CPU, by the host's clock around each
// kernel. Each sample runs `calls` steps with that clock, and as many without it.
Timing share_in_kernels(const std::function<void()>& step, long calls, int samples);

// Counts them while `work` runs.
CudaLaunches cuda_launches(const std::function<void()>& work);

}  // namespace brrr::measure
