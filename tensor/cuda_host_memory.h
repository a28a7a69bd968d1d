// Host memory that the device can reach by itself (pinned), and the staging through which pageable
// memory passes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

#include <brrr/tensor/cuda_api.h>

namespace brrr::cu {

struct DeviceState;
struct CudaStream;

// A cached pinned buffer. Whoever drops it has seen to it that no copy is under way.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(DeviceState& device, std::size_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(other.bytes_),
        capacity_(other.capacity_) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~PinnedBuffer();

  void* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0, capacity_ = 0;
};

bool is_pinned(DeviceState& device, const void* host);

// Frees the pinned buffers that nobody holds.
void empty_pinned_cache();
void forget_pinned_cache() noexcept;  // the same without telling the driver

// Two rings of pinned slots, for small and for large copies. A copy from the host is asynchronous
// once its bytes are in a slot; a copy to the host alternates between slots and is complete at
// return. No thread holds the lock while it waits for the device or copies bytes.
//
// A copy waits for copies of its own stream only: another stream may be stuck until the host does
// something after this copy. When others have every slot, the ring gets one more; so it grows by at
// most one for each stream.
class Staging {
 public:
  explicit Staging(DeviceState& device) : device_(device) {}
  void from_host(CudaStream& stream, void* to, const void* host, std::size_t bytes);
  void to_host(CudaStream& stream, void* host, const void* from, std::size_t bytes);
  void destroy() noexcept;

  static constexpr std::size_t kSmall = std::size_t{64} << 10;
  static constexpr std::size_t kLarge = std::size_t{4} << 20;

 private:
  struct Slot {
    char* data = nullptr;
    PinnedBuffer own;  // of a slot that was added
    CUevent event = nullptr;
    CudaStream* user = nullptr;    // whose copy it is or was last for
    CudaStream* stream = nullptr;  // set while a copy may be under way
    bool recorded = false;         // whether `event` tells when it is done
    bool taken = false;            // one thread's own; the rest of the slot is only its to touch
  };
  struct Ring {
    std::size_t slot_bytes;
    int first_slots;
    PinnedBuffer memory;     // of the first slots
    std::deque<Slot> slots;  // grows at its end; a slot stays where it is
    std::size_t next = 0;
    std::condition_variable given_back;
  };

  class Taken;

  bool idle(const Slot& slot) const;
  Ring& ring_for(std::size_t bytes);
  void wait(Slot& slot);
  void mark(Slot& slot, CudaStream& stream);

  DeviceState& device_;
  std::mutex mutex_;
  // A read takes two slots, so that two slow reads of large tensors leave room for other copies.
  Ring small_{kSmall, 16, {}, {}, 0, {}}, large_{kLarge, 4, {}, {}, 0, {}};
};

}  // namespace brrr::cu
