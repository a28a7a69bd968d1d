// The state of a GPU, from the driver's management library, which is opened for it. Its functions
// are declared here: the toolkit's headers may lack them.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "brrr/measure/gpu_state.h"
#include "brrr/tensor/cuda_runtime.h"

namespace brrr::measure {
namespace {

struct NvmlLibrary {
  void* file = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  ~NvmlLibrary() {
    if (file) dlclose(file);
  }
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(file, name));
  }
};

struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
constexpr int kMostProcesses = 64;

using Handle = void*;
using ByBus = int(const char* bus, Handle* device);
using Processes = int(Handle device, unsigned* count, Process* processes);
using Clock = int(Handle device, int kind, unsigned* mhz);
using Reasons = int(Handle device, unsigned long long* bits);

struct Reason {
  unsigned long long bit;
  const char* text;
};
// Reasons for a slowed clock. The power limit is not among them, since large products always run at
// it.
constexpr std::array<Reason, 4> kSlowed = {{{0x08, "hardware slowdown"},
                                            {0x20, "thermal slowdown by the driver"},
                                            {0x40, "thermal slowdown by the hardware"},
                                            {0x80, "power brake"}}};

std::string bus_of(Device device) {
  const cu::DeviceState& state = cu::device_state(device.index);
  return fmt::format("{:08x}:{:02x}:{:02x}.0", state.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                     state.attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                     state.attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
}

}  // namespace

GpuState gpu_state(Device device) {
  GpuState state;
  const auto unknown = [&](const std::string& why) {
    state.unavailable = {"other processes on the card: " + why,
                         "why the card's clock is what it is: " + why};
    return state;
  };
  const NvmlLibrary library;
  if (!library.file) return unknown("libnvidia-ml.so.1 not found");
  const auto init = library.find<int()>("nvmlInit_v2"), done = library.find<int()>("nvmlShutdown");
  const auto by_bus = library.find<ByBus>("nvmlDeviceGetHandleByPciBusId_v2");
  const auto processes = library.find<Processes>("nvmlDeviceGetComputeRunningProcesses_v3");
  const auto clock = library.find<Clock>("nvmlDeviceGetClockInfo");
  const auto reasons = library.find<Reasons>("nvmlDeviceGetCurrentClocksThrottleReasons");
  if (!init || !done || !by_bus || !processes || !clock || !reasons)
    return unknown("libnvidia-ml.so.1 is too old");
  if (const int code = init()) return unknown(fmt::format("nvmlInit_v2 failed: {}", code));
  const struct AtEnd {
    int (*done)();
    ~AtEnd() { done(); }
  } at_end{done};

  Handle handle = nullptr;
  const std::string bus = bus_of(device);
  if (const int code = by_bus(bus.c_str(), &handle))
    return unknown(fmt::format("NVML knows no device {}: {}", bus, code));
  std::array<Process, kMostProcesses> list;
  unsigned count = kMostProcesses, mhz = 0;
  constexpr int kInsufficientSize = 7;  // the list is too short; `count` is of all processes
  if (const int code = processes(handle, &count, list.data());
      code == 0 || code == kInsufficientSize) {
    state.processes = static_cast<int>(count);
  } else {
    state.unavailable.push_back(fmt::format(
        "other processes on the card: nvmlDeviceGetComputeRunningProcesses failed: {}", code));
  }
  constexpr int kMultiprocessors = 1;
  if (clock(handle, kMultiprocessors, &mhz) == 0) state.clock_mhz = mhz;
  unsigned long long bits = 0;
  if (const int code = reasons(handle, &bits)) {
    state.unavailable.push_back(
        fmt::format("why the card's clock is what it is: "
                    "nvmlDeviceGetCurrentClocksThrottleReasons failed: {}",
                    code));
  }
  for (const Reason& reason : kSlowed) {
    if (bits & reason.bit) state.slowed_by.emplace_back(reason.text);
  }
  return state;
}

}  // namespace brrr::measure
