// A timeline: what the host did and what the device ran during some steps, on one clock.
// timeline.cpp records one, chrome_trace.h writes it for Perfetto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <brrr/graph/step_report.h>
#include <brrr/measure/gpu_state.h>
#include <brrr/measure/timing.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

enum class HostWork : std::uint8_t { step, op, backward, allocation, launch, replay, wait, trace };
enum class DeviceWork : std::uint8_t { kernel, copy, fill };

// Times are nanoseconds of host_seconds()'s clock.
struct HostSpan {
  std::string name;  // "matmul", "cuLaunchKernel"
  HostWork work = HostWork::op;
  int thread = 0;  // in the order in which threads appear
  std::int64_t start_ns = 0, end_ns = 0;
  std::string where = {};                // the module, or the user's line; empty: unknown
  std::optional<std::size_t> call = {};  // of an op: which of Timeline::calls
};

// What a call computes, and where it is made.
struct CallDetails {
  std::string result = {};  // the first one: "f32[64, 128]"
  std::int64_t flops = 0, bytes = 0;
  std::string phase = {};  // "forward", "backward" or "update"
  std::string line = {};   // "train.cpp:31 in step"; of gradients, of the backward pass
};

struct DeviceSpan {
  std::string name;
  DeviceWork work = DeviceWork::kernel;
  int stream = 0;  // in the order in which streams appear; lanes of a replay are streams
  std::int64_t start_ns = 0, end_ns = 0;
  std::optional<std::size_t> cause = {};   // the host span that launched it, an index of `host`
  bool replayed = false;                   // part of a graph launch
  std::optional<std::size_t> launch = {};  // of a compiled step: which of its launches
  std::optional<int> lane = {};            // in which that launch was captured
  std::string ops = {};                    // that it computes: "gelu + mul"; empty: unknown
};

// The memory that tensors on the device take, after an op.
struct MemorySample {
  std::int64_t at_ns = 0, bytes = 0;
};

// A recording that slows the step by more than this does not represent the untraced step.
constexpr double kMostPerturbation = 0.25;

struct Timeline {
  Device device;
  std::vector<HostSpan> steps;  // each from its call until the device has finished it
  std::vector<HostSpan> host;
  std::vector<DeviceSpan> spans;  // of the device, by rising start
  std::string source;             // "CUPTI 13.0", "events"
  // Gaps in the records, with reasons; empty: they are complete.
  std::vector<std::string> missing;
  Timing untraced, traced;  // of a step; each step is waited for
  // The untraced steps before and after the recording: CUPTI may slow a process down from then on.
  Timing before = {}, after = {};
  std::vector<MemorySample> memory = {};
  // Of one step; with add_details (trace_details.h).
  std::vector<CallDetails> calls = {};
  std::vector<core::LaunchCost> launches = {};  // of the compiled step that it replays

  bool is_complete() const { return missing.empty(); }
  // Where and when it was recorded; on CUDA the state of the card before and after.
  std::string machine, date;
  std::optional<GpuState> gpu;

  // Whether device spans are kernels. Spans from events are ops and replays, including idle time.
  bool has_kernels() const { return device.is_cuda() && source != "events"; }
  // The cost of recording: the traced step's time divided by the untraced one's, minus one.
  double perturbation() const {
    return untraced.median > 0 ? traced.median / untraced.median - 1 : 0;
  }

  // The time of all steps, and the time in it in which the device runs at least one kernel, copy
  // or fill. Spans from events count what is between the events.
  std::int64_t step_ns() const;
  std::int64_t busy_ns() const;
  // The busy share of an untraced step. Recording slows the step but not its kernels, so their time
  // is divided by the untraced step's.
  double busy_share() const;
  // The time in all steps in which a thread is inside of spans of this kind, nested ones once.
  std::int64_t host_ns(HostWork work) const;
};

struct TimelineOptions {
  int steps = 3;  // to record, after warm-up
  // Of the untraced steps, half of them before and half of them after the recording.
  int untraced_steps = 20;
  double budget_seconds = 1;  // limits the untraced steps, to at least six
};

// Calls the step until it is warm, times it, and records some steps, each of which is waited for.
// One recording at a time. On CUDA the device's part comes from CUPTI; where that cannot be used,
// from events around ops and replays, and `missing` says so.
Timeline record_timeline(Device device, const std::function<void()>& step,
                         const TimelineOptions& options = {});

const char* name_of(HostWork work);    // "allocation"
const char* name_of(DeviceWork work);  // "kernel"

}  // namespace brrr::measure
