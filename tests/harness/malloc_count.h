// Counts calls of malloc and its kin, of any thread. malloc itself is replaced in the test
// executables, so that what libraries ask for is seen as well.
#pragma once

#include <cstdlib>  // __GLIBC__

#include <brrr/tensor/sanitizers.h>

// Sanitizers replace malloc themselves.
#if BRRR_ASAN || BRRR_TSAN || !defined(__GLIBC__)
#define BRRR_COUNTS_MALLOC 0
#else
#define BRRR_COUNTS_MALLOC 1
#endif

namespace brrr::testing {

// Counts from construction to destruction; one at a time.
class MallocCount {
 public:
  enum class Threads { all, this_one };
  explicit MallocCount(Threads threads = Threads::all);
  ~MallocCount();
  MallocCount(const MallocCount&) = delete;
  MallocCount& operator=(const MallocCount&) = delete;
  long calls() const;
};

// Calls of this thread do not count meanwhile: for code that is not ours.
class MallocPause {
 public:
  MallocPause();
  ~MallocPause();
  MallocPause(const MallocPause&) = delete;
  MallocPause& operator=(const MallocPause&) = delete;
};

}  // namespace brrr::testing
