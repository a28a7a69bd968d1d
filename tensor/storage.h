// A block of memory on a device, counted; what tensors that are views of one another share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <brrr/tensor/device.h>

namespace brrr {

struct StreamState;

struct Storage {
  std::atomic<std::uint32_t> refs{1};
  // Counts writes through in-place ops, from any thread: views of one storage may be written side
  // by side.
  std::atomic<std::uint32_t> version{0};
  Device device;
  // Counts how often the library gave an owner of this memory other memory in its place: see
  // `replace` in dispatch/tracing.h.
  std::atomic<std::uint32_t> replaced{0};
  void* data = nullptr;
  std::size_t bytes = 0;
  StreamState* stream = nullptr;  // CUDA: the stream that the block belongs to
  void (*release)(Storage&) noexcept =
      nullptr;              // gives `data` back; the Storage itself returns to its pool
  void* context = nullptr;  // for `release`

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  void drop() {
    // The last owner needs no atomic subtraction: nobody else can touch the count.
    if (refs.load(std::memory_order_acquire) == 1 ||
        refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
      destroy();
  }

 private:
  void destroy();
};

// Uninitialized memory on the device, on its current stream.
Storage* new_storage(Device device, std::size_t bytes);

// Memory that somebody else made; `release` gives it back with `context`.
Storage* adopt_storage(Device device, void* data, std::size_t bytes,
                       void (*release)(Storage&) noexcept, void* context);

}  // namespace brrr
