#include "tensor/cuda_host_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <vector>

#include "tensor/cuda_faults.h"
#include "tensor/cuda_runtime.h"
#include "tensor/error.h"

namespace brrr::cu {
namespace {

// Pinned buffers by capacity, a power of two. Shared by all devices: pinned memory is visible to
// each.
struct PinnedCache {
  std::mutex mutex;
  std::multimap<std::size_t, void*> free;
};
PinnedCache& pinned() {
  static auto* cache = new PinnedCache;
  return *cache;
}

}  // namespace

PinnedBuffer::PinnedBuffer(DeviceState& device, std::size_t bytes)
    : bytes_(bytes), capacity_(std::bit_ceil(std::max<std::size_t>(bytes, 4096))) {
  PinnedCache& cache = pinned();
  {
    std::lock_guard lock(cache.mutex);
    if (auto it = cache.free.find(capacity_); it != cache.free.end()) {
      data_ = it->second;
      cache.free.erase(it);
      return;
    }
  }
  make_current(device);
  BRRR_CUDA(cuMemAllocHost, &data_, capacity_);
}

PinnedBuffer::~PinnedBuffer() {
  if (!data_) return;
  PinnedCache& cache = pinned();
  try {
    std::lock_guard lock(cache.mutex);
    cache.free.emplace(capacity_, data_);
  } catch (...) {
    BRRR_CUDA_TRY(cuMemFreeHost, data_);
  }
}

void empty_pinned_cache() {
  PinnedCache& cache = pinned();
  std::lock_guard lock(cache.mutex);
  for (auto it = cache.free.begin(); it != cache.free.end(); it = cache.free.erase(it)) {
    BRRR_CUDA(cuMemFreeHost, it->second);
  }
}

void forget_pinned_cache() noexcept {
  PinnedCache& cache = pinned();
  std::lock_guard lock(cache.mutex);
  cache.free.clear();
}

bool is_pinned(DeviceState& device, const void* host) {
  make_current(device);
  CUmemorytype type{};
  const CUresult code =
      BRRR_CUDA_TRY(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                    reinterpret_cast<CUdeviceptr>(host));
  if (code == CUDA_ERROR_INVALID_VALUE) return false;  // the driver has not heard of it
  check<Fn::k_cuPointerGetAttribute>(code);
  return type == CU_MEMORYTYPE_HOST;
}

// --- Staging ---

Staging::Ring& Staging::ring_for(std::size_t bytes) {
  Ring& ring = bytes <= kSmall ? small_ : large_;
  if (!ring.memory.data()) ring.memory = PinnedBuffer(device_, ring.slot_bytes * ring.slots);
  return ring;
}

Staging::Slot& Staging::take_slot(Ring& ring) {
  Slot& slot = ring.slot[ring.next];
  ring.next = (ring.next + 1) % ring.slots;
  wait(slot);
  if (!slot.event) slot.event = device_.streams.take_event(false);
  return slot;
}

void Staging::wait(Slot& slot) {
  if (!slot.stream) return;
  if (slot.recorded) {
    BRRR_CUDA(cuEventSynchronize, slot.event);
  } else {
    BRRR_CUDA(cuStreamSynchronize, slot.stream->handle);
  }
  slot.stream = nullptr;
}

// Called after a copy was issued, so `slot` counts as busy even when the event cannot be recorded.
void Staging::mark(Slot& slot, CudaStream& stream) {
  slot.stream = &stream;
  slot.recorded = false;
  BRRR_CUDA(cuEventRecord, slot.event, stream.handle);
  slot.recorded = true;
}

void Staging::from_host(CudaStream& stream, void* to, const void* host, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  Ring& ring = ring_for(bytes);
  for (std::size_t done = 0; done < bytes; done += ring.slot_bytes) {
    const std::size_t size = std::min(ring.slot_bytes, bytes - done);
    Slot& slot = take_slot(ring);
    std::memcpy(ring.data(slot), static_cast<const char*>(host) + done, size);
    BRRR_CUDA(cuMemcpyHtoDAsync, reinterpret_cast<CUdeviceptr>(to) + done, ring.data(slot), size,
              stream.handle);
    mark(slot, stream);
  }
}

void Staging::to_host(CudaStream& stream, void* host, const void* from, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  Ring& ring = ring_for(bytes);
  Slot* filled = nullptr;
  std::size_t filled_at = 0;
  for (std::size_t done = 0; done < bytes; done += ring.slot_bytes) {
    const std::size_t size = std::min(ring.slot_bytes, bytes - done);
    Slot& slot = take_slot(ring);
    BRRR_CUDA(cuMemcpyDtoHAsync, ring.data(slot), reinterpret_cast<CUdeviceptr>(from) + done, size,
              stream.handle);
    if (size == bytes) {
      // The common small read: one wait for the stream, which also brings out failures of its host
      // work.
      slot.stream = &stream;
      slot.recorded = false;
      stream.synchronize();
      slot.stream = nullptr;
      std::memcpy(host, ring.data(slot), size);
      return;
    }
    mark(slot, stream);
    if (filled) {
      wait(*filled);
      std::memcpy(static_cast<char*>(host) + filled_at, ring.data(*filled), ring.slot_bytes);
    }
    filled = &slot;
    filled_at = done;
  }
  wait(*filled);
  std::memcpy(static_cast<char*>(host) + filled_at, ring.data(*filled), bytes - filled_at);
  check_faults(stream.device);
}

void Staging::destroy() noexcept {
  std::lock_guard lock(mutex_);
  for (Ring* ring : {&small_, &large_}) {
    for (Slot& slot : ring->slot) {
      if (slot.event) device_.streams.give_event(slot.event, false);
      slot = {};
    }
    ring->memory = {};
  }
}

}  // namespace brrr::cu
