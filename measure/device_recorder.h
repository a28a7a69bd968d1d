// Records what a device runs between the construction and the stop of a recorder, and the driver
// calls that issued this work.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/timeline.h>

namespace brrr::measure {

// Times are nanoseconds of host_seconds()'s clock.
struct DeviceRecord {
  DeviceWork work = DeviceWork::kernel;
  std::string name = {};  // of a kernel: its symbol
  std::uint64_t stream = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint32_t call = 0;                  // correlation id of the driver call; 0: unknown
  std::optional<std::size_t> cause = {};   // the host span that issued it
  std::optional<std::uint64_t> node = {};  // graph node
};

struct DriverCall {
  std::string name;
  std::uint32_t thread = 0;  // as native_thread()
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint32_t correlation = 0;
  bool waits = false;  // for the device
};

struct DeviceRecords {
  std::vector<DeviceRecord> device;
  std::vector<DriverCall> calls;
  std::vector<std::string> missing;
};

// `begin` and `end` are called on the thread that issues the work of a span, in pairs that nest.
class DeviceRecorder {
 public:
  virtual ~DeviceRecorder() = default;
  virtual void begin(std::size_t span) = 0;
  virtual void end(std::size_t span) = 0;
  virtual std::string source() const = 0;
  // Ends the recording. Call once, after waiting for the device.
  virtual DeviceRecords stop() = 0;
};

// The thread, as driver calls name it.
std::uint32_t native_thread();

// By CUPTI, or by events where CUPTI cannot be used.
std::unique_ptr<DeviceRecorder> record_cuda(Device device);

}  // namespace brrr::measure
