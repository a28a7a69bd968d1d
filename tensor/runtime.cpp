// Maps devices to their runtimes, and answers queries about devices that depend on the runtime.
#include "brrr/tensor/runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "brrr/tensor/fail.h"

namespace brrr {

DeviceRuntime& runtime_of(DeviceType type) {
  if (type == DeviceType::cpu) return cpu_runtime();
  return cuda_runtime();
}

void order_streams(StreamState& earlier, StreamState& later) {
  const auto event = runtime_of(earlier.device.type).new_event(earlier.device, false);
  event->record(earlier);
  event->make_wait(later);
}

int device_count(DeviceType type) { return std::min(runtime_of(type).count(), kMaxDevices); }

bool cuda_is_available() { return device_count(DeviceType::cuda) > 0; }

void require_device(Device device, const char* op) {
  if (device == cpu) [[likely]]
    return;
  const int count = device_count(device.type);
  if (device.index < count) [[likely]]
    return;
  if (count == 0) {
    throw CudaError(fmt::format("[{}] expected a CUDA device, got none: {}", op,
                                runtime_of(device.type).why_none()),
                    0);
  }
  fail("[{}] expected one of {} {} device{}, got {}:{}", op, count,
       device.is_cpu() ? "CPU" : "CUDA", count == 1 ? "" : "s", device.is_cpu() ? "cpu" : "cuda",
       device.index);
}

MemoryStats memory_stats(Device device) {
  if (device != cpu) require_device(device, "memory_stats");
  return runtime_of(device.type).stats(device);
}

void reset_peak_memory(Device device) {
  if (device != cpu) require_device(device, "reset_peak_memory");
  runtime_of(device.type).reset_peak(device);
}

void empty_cache(Device device) {
  if (device != cpu) require_device(device, "empty_cache");
  runtime_of(device.type).empty_cache(device);
}

}  // namespace brrr
