// A reference-counted block of memory on a device, shared by tensors that alias.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <brrr/tensor/device.h>

namespace brrr {

namespace core {
struct Storage;
struct StreamState;
}  // namespace core

struct core::Storage {
  std::atomic<std::uint32_t> refs{1};
  // The part of `refs` that compiled steps hold; the others are the user's and autograd's.
  std::atomic<std::uint32_t> replay_refs{0};
  // Counts writes by in-place ops. Atomic: several threads may write disjoint views.
  std::atomic<std::uint32_t> version{0};
  Device device;
  // Counts how often the library replaced this memory in one of its owners: see `replace` in
  // dispatch/tracing.h.
  std::atomic<std::uint32_t> replaced{0};
  void* data = nullptr;
  std::size_t bytes = 0;
  StreamState* stream = nullptr;  // CUDA: the stream that the block belongs to
  void (*release)(Storage&) noexcept =
      nullptr;              // frees `data`; the Storage itself returns to its pool
  void* context = nullptr;  // for `release`

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  void drop() {
    // With a count of one, no other thread can reach the storage: no atomic subtraction is needed.
    if (refs.load(std::memory_order_acquire) == 1 ||
        refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
      destroy();
  }

 private:
  void destroy();
};

// Uninitialized memory on the device, on its current stream.
Storage* new_storage(Device device, std::size_t bytes);

// Takes ownership of memory that `release` frees, which reads `context` from the storage.
Storage* adopt_storage(Device device, void* data, std::size_t bytes,
                       void (*release)(Storage&) noexcept, void* context);

}  // namespace brrr
