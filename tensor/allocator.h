// Memory for storages. Both allocators cache freed blocks: the CPU's per thread and size class,
// CUDA's by stream.
#pragma once

#include <cstdint>

#include <brrr/tensor/device.h>

namespace brrr {

struct MemoryStats {
  std::int64_t live = 0;                // bytes asked for by storages that exist now
  std::int64_t peak = 0;                // the largest `live` since the last reset_peak
  std::int64_t reserved = 0;            // bytes owned: live blocks, rounded up, and the cache
  std::int64_t system_allocations = 0;  // calls made to the system's allocator
  std::int64_t captured = 0;            // part of `reserved`: owned by captured CUDA graphs
  std::int64_t cached() const {
    return reserved > live + captured ? reserved - live - captured : 0;
  }
};

MemoryStats memory_stats(Device device);
void reset_peak_memory(Device device);

// Returns cached blocks to the system. On CUDA this includes pinned memory.
void empty_cache(Device device);

}  // namespace brrr
