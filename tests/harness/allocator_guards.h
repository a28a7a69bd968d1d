// Sets the allocators' mode for a scope. Address-sanitized builds start in pass-through, so tests
// of the cache ask for caching.
#pragma once

#include <brrr/tensor/cpu_allocator.h>

namespace brrr::testing {

template <bool kPassThrough>
class AllocatorMode {
 public:
  AllocatorMode() { set_allocator_pass_through(kPassThrough); }
  AllocatorMode(const AllocatorMode&) = delete;
  AllocatorMode& operator=(const AllocatorMode&) = delete;
  ~AllocatorMode() {
    set_allocator_pass_through(before_);
    if (before_) empty_cache(cpu);
  }

 private:
  bool before_ = allocator_pass_through();
};

using Caching = AllocatorMode<false>;
using PassThrough = AllocatorMode<true>;

}  // namespace brrr::testing
