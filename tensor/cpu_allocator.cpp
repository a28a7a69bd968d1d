// The CPU's caching allocator. Free small blocks (up to 1 MiB) are in per-thread bins by size
// class, which need no lock; larger ones are in one shared map, and are reused if at most an eighth
// is wasted. A block is returned to the bin of the thread that frees it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "brrr/tensor/cpu_allocator.h"
#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/pool.h"
#include "brrr/tensor/sanitizers.h"
#include "brrr/tensor/thread_context.h"

// The address sanitizer's, where the process has it: without it both are null.
extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* begin, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* begin, std::size_t bytes);
}

namespace brrr {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmall = std::size_t{1} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kBinBytes = std::size_t{4}
                                  << 20;  // the most that one thread caches of one class
constexpr std::int64_t kLargeCacheBytes = std::int64_t{8} << 30;  // the most in the shared map

// Classes: every 64 bytes up to 1 KiB, then four to each doubling.
constexpr int class_of(std::size_t bytes) {
  if (bytes <= 1024) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / 64);
  const int log = std::bit_width(bytes - 1) - 1;
  return 16 + (log - 10) * 4 + static_cast<int>((bytes - 1) >> (log - 2)) - 4;
}
constexpr std::size_t class_bytes(int c) {
  if (c < 16) return (c + 1) * 64;
  const int log = 10 + (c - 16) / 4;
  return (std::size_t{5} + (c - 16) % 4) << (log - 2);
}
constexpr int kClasses = class_of(kSmall) + 1;
static_assert(class_bytes(class_of(1)) == 64 && class_bytes(class_of(1025)) == 1280 &&
              class_bytes(class_of(kSmall)) == kSmall);

struct FreeBlock {
  FreeBlock* next;
};
struct Bin {
  FreeBlock* head;
  std::size_t bytes;
};
struct Bins {
  Bin bin[kClasses];
  bool open;
  bool counts_alone;         // this thread is the one that writes `live_alone`
  cpu_memory::Watch* watch;  // not null: the thread uses the slow path, which counts for it
};
thread_local constinit Bins bins{};

std::atomic<std::int64_t> peak{0}, reserved{0}, system_calls{0};

// Live bytes are exact, but a locked addition would be half the price of a small tensor. So the
// first thread that allocates counts alone, with plain stores, and all other threads share a locked
// counter; live is their sum.
std::atomic<std::int64_t> live_alone{0}, live_shared{0};
std::atomic<bool> a_thread_counts_alone{false};

std::string_view wanted_allocator() {
  const char* text = std::getenv("BRRR_ALLOCATOR");
  return text ? text : "";
}
std::atomic<bool> pass_through{!kPooling || wanted_allocator() == "passthrough"};

struct LargeCache {
  std::mutex mutex;
  std::multimap<std::size_t, void*> blocks;
  std::int64_t bytes = 0;
};
LargeCache& large() {
  static LargeCache* cache = new LargeCache;  // outlives every static tensor
  return *cache;
}

void raise_peak(std::int64_t now) {
  std::int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

inline void count_live(std::int64_t bytes) {
  std::int64_t now;
  if (bins.counts_alone) [[likely]] {
    const std::int64_t mine = live_alone.load(std::memory_order_relaxed) + bytes;
    live_alone.store(mine, std::memory_order_relaxed);
    now = mine + live_shared.load(std::memory_order_relaxed);
  } else {
    now = live_shared.fetch_add(bytes, std::memory_order_relaxed) + bytes +
          live_alone.load(std::memory_order_relaxed);
    if (bins.watch) bins.watch->count(bytes);
  }
  if (now > peak.load(std::memory_order_relaxed)) [[unlikely]]
    raise_peak(now);
}

void release_to_system(void* block, std::size_t size) noexcept {
  std::free(block);
  reserved.fetch_sub(static_cast<std::int64_t>(size), std::memory_order_relaxed);
}

void drain_bins() noexcept {
  for (int c = 0; c < kClasses; ++c) {
    while (FreeBlock* block = bins.bin[c].head) {
      bins.bin[c].head = block->next;
      release_to_system(block, class_bytes(c));
    }
    bins.bin[c].bytes = 0;
  }
}

void drain_large() noexcept {
  LargeCache& cache = large();
  std::lock_guard lock(cache.mutex);
  for (auto& [size, block] : cache.blocks) release_to_system(block, size);
  cache.blocks.clear();
  cache.bytes = 0;
}

void* from_system(std::size_t size) {
  require_known_allocator();
  system_calls.fetch_add(1, std::memory_order_relaxed);
  const std::size_t alignment = size >= 2 * kHugePage ? kHugePage : kAlignment;
  void* block = nullptr;
  if (posix_memalign(&block, alignment, size) != 0) return nullptr;
  if (alignment == kHugePage) madvise(block, size, MADV_HUGEPAGE);
  reserved.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  return block;
}

// The number after `name` in a file of lines "Name:  123 kB", in bytes; -1 if the name is missing.
// Called when memory has run out, so it must not allocate.
std::int64_t kilobytes_of(const char* path, const char* name) {
  char text[4096];
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  const ssize_t size = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (size <= 0) return -1;
  text[size] = '\0';
  const char* line = std::strstr(text, name);
  return line ? std::strtoll(line + std::strlen(name), nullptr, 10) * 1024 : -1;
}

// The memory that is left, and what limits it: the system, or a limit of the process.
struct Free {
  std::int64_t bytes;
  const char* source;
};
Free free_memory() {
  Free free{kilobytes_of("/proc/meminfo", "MemAvailable:"), "MemAvailable"};
  const auto limit = [&](auto resource, const char* used, const char* source) {
    rlimit most{};
    if (::getrlimit(resource, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return;
    const std::int64_t taken = kilobytes_of("/proc/self/status", used);
    if (taken < 0) return;
    const std::int64_t left = std::max<std::int64_t>(
        0, static_cast<std::int64_t>(std::min<rlim_t>(most.rlim_cur, INT64_MAX)) - taken);
    if (free.bytes < 0 || left < free.bytes) free = {left, source};
  };
  limit(RLIMIT_AS, "VmSize:", "RLIMIT_AS");
  limit(RLIMIT_DATA, "VmData:", "RLIMIT_DATA");
  return free;
}

[[noreturn]] void out_of_memory(std::size_t bytes) {
  const MemoryStats stats = cpu_memory::stats();
  const Free free = free_memory();
  throw OutOfMemory(
      fmt::format("[{}] out of memory on cpu: requested {} bytes, in use {}, cached {}, free {}",
                  op_or("allocate"), bytes, stats.live, stats.cached(),
                  free.bytes < 0 ? std::string("unknown")
                                 : fmt::format("{} ({})", free.bytes, free.source)),
      bytes);
}

[[gnu::noinline]] void* allocate_slow(std::size_t bytes, std::size_t size) {
  struct Cleanup {
    ~Cleanup() {
      bins.open = false;
      drain_bins();
      if (bins.counts_alone) {
        bins.counts_alone = false;
        live_shared.fetch_add(live_alone.exchange(0));
        a_thread_counts_alone = false;
      }
    }
  };
  static thread_local Cleanup cleanup;
  (void)cleanup;
  if (!bins.open) {
    bins.open = true;
    bins.counts_alone = !a_thread_counts_alone.exchange(true);
  }
  if (size > kSmall && !pass_through.load(std::memory_order_relaxed)) {
    LargeCache& cache = large();
    std::lock_guard lock(cache.mutex);
    auto it = cache.blocks.lower_bound(size);
    if (it != cache.blocks.end() && it->first == size) {
      void* block = it->second;
      cache.bytes -= static_cast<std::int64_t>(it->first);
      cache.blocks.erase(it);
      return block;
    }
  }
  void* block = from_system(size);
  if (!block) {
    drain_bins();
    drain_large();
    block = from_system(size);
  }
  if (!block) out_of_memory(bytes);
  // What a block has more than was asked for. Blocks of the caches serve requests of other sizes.
  if (__asan_poison_memory_region && pass_through.load(std::memory_order_relaxed))
    __asan_poison_memory_region(static_cast<char*>(block) + bytes, size - bytes);
  return block;
}

// Large blocks are rounded up, so that a cached block serves requests of similar sizes.
std::size_t block_size(std::size_t bytes) {
  if (bytes <= kSmall) return class_bytes(class_of(bytes));
  const std::size_t step = std::max(std::bit_floor(bytes) / 8, kAlignment);
  return (bytes + step - 1) / step * step;
}

}  // namespace

namespace cpu_memory {

void* allocate(std::size_t bytes) {
  if (bytes <= kSmall) [[likely]] {
    const int c = class_of(bytes);
    Bin& bin = bins.bin[c];
    if (FreeBlock* block = bin.head) [[likely]] {
      bin.head = block->next;
      bin.bytes -= class_bytes(c);
      count_live(static_cast<std::int64_t>(bytes));
      return block;
    }
  }
  void* block = allocate_slow(
      bytes, bytes > static_cast<std::size_t>(INT64_MAX) / 2 ? bytes : block_size(bytes));
  count_live(static_cast<std::int64_t>(bytes));
  return block;
}

void release(void* pointer, std::size_t bytes) noexcept {
  count_live(-static_cast<std::int64_t>(bytes));
  const bool caching = !pass_through.load(std::memory_order_relaxed);
  if constexpr (BRRR_ASAN) __asan_unpoison_memory_region(pointer, block_size(bytes));
  if (bytes <= kSmall) [[likely]] {
    const int c = class_of(bytes);
    Bin& bin = bins.bin[c];
    if (caching && bins.open && bin.bytes < kBinBytes) [[likely]] {
      FreeBlock* block = static_cast<FreeBlock*>(pointer);
      block->next = bin.head;
      bin.head = block;
      bin.bytes += class_bytes(c);
      return;
    }
    release_to_system(pointer, class_bytes(c));
    return;
  }
  const std::size_t size = block_size(bytes);
  if (caching) {
    LargeCache& cache = large();
    std::lock_guard lock(cache.mutex);
    if (cache.bytes + static_cast<std::int64_t>(size) <= kLargeCacheBytes) {
      try {
        cache.blocks.emplace(size, pointer);
        cache.bytes += static_cast<std::int64_t>(size);
        return;
      } catch (...) {  // no memory for the map's node: free the block instead
      }
    }
  }
  release_to_system(pointer, size);
}

MemoryStats stats() {
  return {live_alone.load() + live_shared.load(), peak.load(), reserved.load(),
          system_calls.load()};
}
void reset_peak() { peak.store(live_alone.load() + live_shared.load()); }
void empty_cache() {
  drain_bins();
  drain_large();
}

Watch::Watch() {
  release(allocate(1), 1);  // a thread's first allocation decides whether it counts alone
  outer_ = std::exchange(bins.watch, this);
  counted_alone_ = std::exchange(bins.counts_alone, false);
}
Watch::~Watch() {
  if (outer_) outer_->count(peak_), outer_->count(now_ - peak_);
  bins.watch = outer_;
  bins.counts_alone = counted_alone_;
}

}  // namespace cpu_memory

// Thrown at first use: an exception of a static initializer would end the program.
void require_known_allocator() { require_valid_environment(); }

void set_allocator_pass_through(bool on) { pass_through.store(on); }
bool allocator_pass_through() { return pass_through.load(); }

}  // namespace brrr
