// The pinned slots through which copies from and to pageable host memory pass.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include <brrr/tensor/cuda_api.h>
#include <brrr/tensor/storage.h>

namespace brrr::cu {

struct DeviceState;
struct CudaStream;

// Two rings of slots, for small and for large copies. A copy from the host is asynchronous once its
// bytes are in a slot; a copy to the host alternates between two slots and is complete at return.
// No thread holds the lock while it waits for the device or copies bytes.
//
// A copy waits for copies of its own stream only, since another stream may be blocked until the
// host has done something after this copy. If other streams use every slot, the ring grows by one
// slot: at most one for each stream.
class Staging {
 public:
  explicit Staging(DeviceState& device) : device_(device) {}
  void from_host(CudaStream& stream, void* to, const void* host, std::size_t bytes);
  void to_host(CudaStream& stream, void* host, const void* from, std::size_t bytes);
  void destroy() noexcept;

  static constexpr std::size_t kSmall = std::size_t{64} << 10;
  static constexpr std::size_t kLarge = std::size_t{4} << 20;

 private:
  struct Drop {
    void operator()(Storage* storage) const { storage->drop(); }
  };
  using Pinned = std::unique_ptr<Storage, Drop>;

  struct Slot {
    char* data = nullptr;
    Pinned own;  // of a slot that was added
    CUevent event = nullptr;
    CudaStream* user = nullptr;    // of its last copy
    CudaStream* stream = nullptr;  // set while a copy may be in flight
    bool recorded = false;         // whether `event` tells when it is done
    bool taken = false;            // by one thread, which alone may access the rest of the slot
  };
  struct Ring {
    std::size_t slot_bytes;
    int first_slots;
    Pinned memory;           // of the first slots
    std::deque<Slot> slots;  // grows at its end, so that addresses of slots are stable
    std::size_t next = 0;
    std::condition_variable given_back;
  };

  class SlotOwner;

  bool idle(const Slot& slot) const;
  Ring& ring_for(std::size_t bytes);
  void wait(Slot& slot);
  void mark(Slot& slot, CudaStream& stream);

  DeviceState& device_;
  std::mutex mutex_;
  // A read takes two slots: with four, two slow reads of large tensors block no other copy.
  Ring small_{kSmall, 16, {}, {}, 0, {}}, large_{kLarge, 4, {}, {}, 0, {}};
};

}  // namespace brrr::cu
