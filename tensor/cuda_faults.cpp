#include "brrr/tensor/cuda_faults.h"

#include <bit>
#include <mutex>
#include <utility>

#include "brrr/tensor/cuda_relaxed_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/out_of_range.h"

namespace brrr::cu {
namespace detail {

std::atomic<volatile std::uint32_t*> fault_flags[kMaxDevices];

}  // namespace detail

namespace {

struct DeviceRecord {
  std::mutex mutex;
  std::atomic<bool> ready{false};
  CUdeviceptr record = 0;
  void* flag = nullptr;
  CUstream stream = nullptr;  // for reads and clearing, concurrent with other work
  std::atomic<std::uint64_t> launches{0};
};

DeviceRecord& record_of(Device device) {
  static DeviceRecord* records = new DeviceRecord[kMaxDevices];  // outlives static destructors
  return records[device.index];
}

void make_record(Device device, DeviceRecord& mine) {
  std::lock_guard lock(mine.mutex);
  if (mine.ready.load()) return;
  make_current(device_state(device.index));
  const RelaxedCapture relaxed;
  // After a failure the next try continues with what exists.
  if (!mine.stream) BRRR_CUDA(cuStreamCreate, &mine.stream, CU_STREAM_NON_BLOCKING);
  if (!mine.record) BRRR_CUDA(cuMemAlloc, &mine.record, sizeof(FaultRecord));
  if (!mine.flag) BRRR_CUDA(cuMemAllocHost, &mine.flag, sizeof(std::uint32_t));
  BRRR_CUDA(cuMemsetD8Async, mine.record, 0, sizeof(FaultRecord), mine.stream);
  BRRR_CUDA(cuStreamSynchronize, mine.stream);
  auto* flag = static_cast<volatile std::uint32_t*>(mine.flag);
  *flag = 0;
  detail::fault_flags[device.index].store(flag, std::memory_order_release);
  mine.ready.store(true, std::memory_order_release);
}

}  // namespace

FaultSink fault_sink(Device device, const char* op) {
  DeviceRecord& mine = record_of(device);
  if (!mine.ready.load(std::memory_order_acquire)) [[unlikely]]
    make_record(device, mine);
  const char* name = thread_context.composite ? thread_context.composite : op;
  // Pinned memory has one address on both sides.
  return {mine.record, reinterpret_cast<CUdeviceptr>(mine.flag),
          mine.launches.fetch_add(1, std::memory_order_relaxed) + 1,
          static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(name))};
}

void drop_fault_record(Device device) noexcept {
  DeviceRecord& mine = record_of(device);
  std::lock_guard lock(mine.mutex);
  mine.ready.store(false);
  detail::fault_flags[device.index].store(nullptr);
  if (mine.record) BRRR_CUDA_TRY(cuMemFree, std::exchange(mine.record, 0));
  if (mine.flag) BRRR_CUDA_TRY(cuMemFreeHost, std::exchange(mine.flag, nullptr));
  if (mine.stream) BRRR_CUDA_TRY(cuStreamDestroy, std::exchange(mine.stream, nullptr));
}

void detail::throw_fault(Device device) {
  DeviceRecord& mine = record_of(device);
  FaultRecord record{};
  {
    std::lock_guard lock(mine.mutex);
    make_current(device_state(device.index));
    const RelaxedCapture relaxed;
    // First the flag: a kernel that faults from here on raises it again.
    *static_cast<volatile std::uint32_t*>(mine.flag) = 0;
    BRRR_CUDA(cuMemcpyDtoHAsync, &record, mine.record, sizeof record, mine.stream);
    BRRR_CUDA(cuMemsetD8Async, mine.record, 0, sizeof record, mine.stream);
    BRRR_CUDA(cuStreamSynchronize, mine.stream);
  }
  if (record.rank == 0) return;  // another thread has thrown it
  const char* op = reinterpret_cast<const char*>(static_cast<std::uintptr_t>(record.op));
  const auto position = static_cast<std::int64_t>(~record.rank);
  const auto number = [](std::int64_t bits) { return std::bit_cast<double>(bits); };
  switch (record.kind) {
    case FaultKind::index: index_out_of_range(op, record.high, record.value, position);
    case FaultKind::integer:
      value_out_of_range(op, record.low, record.high, record.value, position);
    case FaultKind::floating:
      value_out_of_range(op, number(record.low), number(record.high), number(record.value),
                         position);
  }
}

}  // namespace brrr::cu
