#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "tests/harness/malloc_count.h"

namespace brrr::testing {
namespace {

std::atomic<bool> counting{false};
std::atomic<long> counted{0};
// In static memory of the executable: allocating it must not call malloc.
constinit thread_local int paused = 0;
std::atomic<const int*> only{nullptr};  // whose `paused`; null: everybody's

[[maybe_unused]] void count_one() {
  const int* thread = only.load(std::memory_order_relaxed);
  if (counting.load(std::memory_order_relaxed) && paused == 0 && (!thread || thread == &paused))
    counted.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

MallocCount::MallocCount(Threads threads) {
  counted = 0;
  only = threads == Threads::this_one ? &paused : nullptr;
  counting = true;
}
MallocCount::~MallocCount() { counting = false; }
long MallocCount::calls() const { return counted.load(); }

MallocPause::MallocPause() { ++paused; }
MallocPause::~MallocPause() { --paused; }

}  // namespace brrr::testing

#if BRRR_COUNTS_MALLOC
using brrr::testing::count_one;

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
// The address sanitizer's, where tests/kernels/sanitize has loaded it.
[[gnu::weak]] void* __interceptor_malloc(std::size_t);
[[gnu::weak]] void* __interceptor_calloc(std::size_t, std::size_t);
[[gnu::weak]] void* __interceptor_realloc(void*, std::size_t);
[[gnu::weak]] void* __interceptor_memalign(std::size_t, std::size_t);

#define BRRR_NEXT(name) (__interceptor_##name ? __interceptor_##name : __libc_##name)
void* malloc(std::size_t bytes) {
  count_one();
  return BRRR_NEXT(malloc)(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  count_one();
  return BRRR_NEXT(calloc)(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  count_one();
  return BRRR_NEXT(realloc)(block, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count_one();
  return BRRR_NEXT(memalign)(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count_one();
  return BRRR_NEXT(memalign)(alignment, bytes);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  count_one();
  *block = BRRR_NEXT(memalign)(alignment, bytes);
  return *block ? 0 : ENOMEM;
}
}
#endif
