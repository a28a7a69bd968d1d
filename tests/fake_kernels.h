// What the kernels of some ops do, for the fake driver.
#pragma once

#include "tests/fake_cuda.h"

namespace brrr::testing {

void define_kernels(FakeCuda& fake);

}  // namespace brrr::testing
