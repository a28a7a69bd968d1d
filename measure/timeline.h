// A timeline: what the host did and what the device ran during some steps, on one clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  std::string where = {};  // the module, or the user's line; empty: unknown
};

struct DeviceSpan {
  std::string name;
  DeviceWork work = DeviceWork::kernel;
  int stream = 0;  // in the order in which streams appear; lanes of a replay are streams
  std::int64_t start_ns = 0, end_ns = 0;
  std::optional<std::size_t> cause = {};   // the host span that launched it, an index of `host`
  bool replayed = false;                   // part of a graph launch
  std::optional<std::size_t> launch = {};  // of a compiled step: which of its launches
};

struct Timeline {
  Device device;
  std::vector<HostSpan> steps;  // each from its call until the device has finished it
  std::vector<HostSpan> host;
  std::vector<DeviceSpan> spans;  // of the device, by rising start
  std::string source;             // "CUPTI 13.0", "events"
  // What the records lack, and why; empty: they are complete.
  std::vector<std::string> missing;
  Timing untraced, traced;  // of a step

  bool is_complete() const { return missing.empty(); }
  // What recording cost: the traced step over the untraced one, less one.
  double perturbation() const { return traced.median / untraced.median - 1; }
};

}  // namespace brrr::measure
