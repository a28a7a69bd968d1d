// CPU implementations of some ops' kernels, for the fake driver.
#pragma once

#include <cstdlib>

#include "tests/fake_cuda/driver.h"

namespace brrr::testing {

void define_kernels(FakeCuda& fake);

// Each text goes to the fake compiler, whatever is on disk.
struct NoDiskCache {
  NoDiskCache() { ::setenv("BRRR_CACHE", "off", 1); }
  ~NoDiskCache() { ::unsetenv("BRRR_CACHE"); }
};

}  // namespace brrr::testing
