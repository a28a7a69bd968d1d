// The CPU's memory, for storages.
#pragma once

#include <brrr/tensor/allocator.h>

namespace brrr {

// Throws if BRRR_ALLOCATOR names an unknown allocator.
void require_known_allocator();

namespace cpu_memory {

// 64-byte aligned; throws OutOfMemory. Pass the same `bytes` to `release`.
void* allocate(std::size_t bytes);
void release(void* block, std::size_t bytes) noexcept;

MemoryStats stats();
void reset_peak();
void empty_cache();

}  // namespace cpu_memory

}  // namespace brrr
