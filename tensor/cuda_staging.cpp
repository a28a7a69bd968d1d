#include "brrr/tensor/cuda_staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "brrr/tensor/cuda_faults.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"

namespace brrr::cu {
// Owns at most one slot, which it returns at the end of the scope. A copy may still be in flight
// then: the slot records it, and the next owner waits for it.
class Staging::SlotOwner {
 public:
  SlotOwner(Staging& staging, Ring& ring, CudaStream& stream)
      : staging_(staging), ring_(ring), stream_(stream) {}
  ~SlotOwner() { release(); }
  SlotOwner(const SlotOwner&) = delete;
  SlotOwner& operator=(const SlotOwner&) = delete;

  explicit operator bool() const { return slot_ != nullptr; }
  Slot& operator*() const { return *slot_; }
  char* data() const { return slot_->data; }

  void take() {
    {
      std::unique_lock lock(staging_.mutex_);
      while (!find()) {
        if (!stream_has_slot()) {
          add();
          break;
        }
        ring_.given_back.wait(lock);
      }
    }
    prepare();
  }
  // False when other threads have every slot.
  bool try_take() {
    {
      std::lock_guard lock(staging_.mutex_);
      if (!find()) return false;
    }
    prepare();
    return true;
  }
  void release() noexcept {
    if (!slot_) return;
    {
      std::lock_guard lock(staging_.mutex_);
      slot_->taken = false;
    }
    slot_ = nullptr;
    ring_.given_back.notify_all();  // all: a waiting thread needs a slot of its own stream
  }

 private:
  // Takes a slot whose copy has ended, else the oldest slot of this stream.
  bool find() {
    Slot* busy = nullptr;
    const std::size_t count = ring_.slots.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = (ring_.next + i) % count;
      Slot& slot = ring_.slots[at];
      if (slot.taken) continue;
      if (staging_.idle(slot)) {
        use(slot);
        ring_.next = (at + 1) % count;
        return true;
      }
      if (!busy && slot.stream == &stream_) busy = &slot;
    }
    if (busy) use(*busy);
    return busy != nullptr;
  }
  bool stream_has_slot() const {
    return std::ranges::any_of(ring_.slots,
                               [&](const Slot& slot) { return slot.user == &stream_; });
  }
  void add() {
    Slot slot;
    slot.own.reset(staging_.device_.pinned.new_pinned_storage(ring_.slot_bytes));
    slot.data = static_cast<char*>(slot.own->data);
    ring_.slots.push_back(std::move(slot));
    use(ring_.slots.back());
  }
  void use(Slot& slot) {
    slot.taken = true;
    slot.user = &stream_;
    slot_ = &slot;
  }
  void prepare() {
    staging_.wait(*slot_);
    if (!slot_->event) slot_->event = staging_.device_.streams.take_event(false);
  }

  Staging& staging_;
  Ring& ring_;
  CudaStream& stream_;
  Slot* slot_ = nullptr;
};

Staging::Ring& Staging::ring_for(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  Ring& ring = bytes <= kSmall ? small_ : large_;
  if (ring.slots.empty()) {
    ring.memory.reset(device_.pinned.new_pinned_storage(ring.slot_bytes * ring.first_slots));
    ring.slots.resize(static_cast<std::size_t>(ring.first_slots));
    char* data = static_cast<char*>(ring.memory->data);
    for (Slot& slot : ring.slots) slot.data = std::exchange(data, data + ring.slot_bytes);
  }
  return ring;
}

// Whether no copy is in flight, without waiting. A slot whose event was not recorded counts as
// busy.
bool Staging::idle(const Slot& slot) const {
  return !slot.stream || (slot.recorded && BRRR_CUDA_TRY(cuEventQuery, slot.event) == CUDA_SUCCESS);
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

// Call after a copy was issued. The slot counts as busy even if its event cannot be recorded.
void Staging::mark(Slot& slot, CudaStream& stream) {
  slot.stream = &stream;
  slot.recorded = false;
  BRRR_CUDA(cuEventRecord, slot.event, stream.handle);
  slot.recorded = true;
}

void Staging::from_host(CudaStream& stream, void* to, const void* host, std::size_t bytes) {
  Ring& ring = ring_for(bytes);
  for (std::size_t done = 0; done < bytes; done += ring.slot_bytes) {
    const std::size_t size = std::min(ring.slot_bytes, bytes - done);
    SlotOwner slot(*this, ring, stream);
    slot.take();
    std::memcpy(slot.data(), static_cast<const char*>(host) + done, size);
    BRRR_CUDA(cuMemcpyHtoDAsync, reinterpret_cast<CUdeviceptr>(to) + done, slot.data(), size,
              stream.handle);
    mark(*slot, stream);
  }
}

void Staging::to_host(CudaStream& stream, void* host, const void* from, std::size_t bytes) {
  Ring& ring = ring_for(bytes);
  SlotOwner slots[2] = {{*this, ring, stream}, {*this, ring, stream}};
  std::size_t filled_at = 0;
  const auto drain = [&](SlotOwner& filled) {
    wait(*filled);
    std::memcpy(static_cast<char*>(host) + filled_at, filled.data(),
                std::min(ring.slot_bytes, bytes - filled_at));
    filled.release();
  };
  int turn = 0;
  for (std::size_t done = 0; done < bytes; done += ring.slot_bytes, turn ^= 1) {
    const std::size_t size = std::min(ring.slot_bytes, bytes - done);
    SlotOwner &slot = slots[turn], &filled = slots[turn ^ 1];
    // Never wait for a slot while owning one: two reads with one slot each would deadlock.
    if (filled && !slot.try_take()) drain(filled);
    if (!slot) slot.take();
    BRRR_CUDA(cuMemcpyDtoHAsync, slot.data(), reinterpret_cast<CUdeviceptr>(from) + done, size,
              stream.handle);
    if (size == bytes) {
      // A read that fits one slot: a single wait for the stream, which also rethrows failures of
      // its host work.
      (*slot).stream = &stream;
      (*slot).recorded = false;
      stream.synchronize();
      (*slot).stream = nullptr;
      std::memcpy(host, slot.data(), size);
      return;
    }
    mark(*slot, stream);
    if (filled) drain(filled);
    filled_at = done;
  }
  drain(slots[turn ^ 1]);
  check_faults(stream.device);
}

void Staging::destroy() noexcept {
  std::lock_guard lock(mutex_);
  for (Ring* ring : {&small_, &large_}) {
    for (Slot& slot : ring->slots) {
      if (slot.event) device_.streams.give_event(slot.event, false);
    }
    ring->slots.clear();
    ring->next = 0;
    ring->memory.reset();
  }
}

}  // namespace brrr::cu
