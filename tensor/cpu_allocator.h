// The CPU's caching allocator as storages and CPU kernels use it; cpu_allocator.cpp describes it.
#pragma once

#include <algorithm>
#include <cstddef>

#include <brrr/tensor/allocator.h>

namespace brrr {

// Throws if BRRR_ALLOCATOR names an unknown allocator.
void require_known_allocator();

// Pass-through: every allocation goes to the system and every free returns there at once, so that
// memory checkers see each block. The default in builds with the address sanitizer and with
// BRRR_ALLOCATOR=passthrough in the environment.
void set_allocator_pass_through(bool on);
bool allocator_pass_through();

namespace cpu_memory {

// 64-byte aligned; throws OutOfMemory. Pass the same `bytes` to `release`.
void* allocate(std::size_t bytes);
void release(void* block, std::size_t bytes) noexcept;

MemoryStats stats();
void reset_peak();
void empty_cache();

// Counts the bytes that this thread allocates, less those that it releases, while it exists.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  std::size_t peak() const { return static_cast<std::size_t>(peak_); }
  void count(std::int64_t bytes) { peak_ = std::max(peak_, now_ += bytes); }

 private:
  std::int64_t now_ = 0, peak_ = 0;
  Watch* outer_;
  bool counted_alone_;
};

}  // namespace cpu_memory

}  // namespace brrr
