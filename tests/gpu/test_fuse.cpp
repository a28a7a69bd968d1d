// Fused steps on CUDA.
#include "brrr/ops/jit/compiler.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_random.h"
#include "tests/harness/fused_programs.h"
#include "tests/harness/skip.h"

namespace brrr::test {

TEST_CASE("fused programs on CUDA give what eager ones do", "[gpu][fuse]") {
  check_fused_programs(cuda(0));
}

TEST_CASE("products and what follows them are one kernel, with eager's bits", "[gpu][fuse]") {
  check_fused_products(cuda(0));
}

TEST_CASE("large products and what follows them are one kernel", "[gpu][fuse]") {
  if (jit::architecture_of(cuda(0)) != 90) return testing::skip("needs compute capability 9.0");
  check_fused_tile_products(cuda(0));
}

TEST_CASE("random programs on CUDA have eager's bits when they are fused", "[gpu][programs]") {
  check_random_programs(cuda(0), 100, Mode::fused);
}

}  // namespace brrr::test
