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

void* malloc(std::size_t bytes) {
  count_one();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  count_one();
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  count_one();
  return __libc_realloc(block, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count_one();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count_one();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  count_one();
  *block = __libc_memalign(alignment, bytes);
  return *block ? 0 : ENOMEM;
}
}
#endif
