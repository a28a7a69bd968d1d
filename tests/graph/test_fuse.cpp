// Fused steps on the CPU have eager's bits.
#include "tests/harness/catch.h"
#include "tests/harness/compile_random.h"
#include "tests/harness/fused_programs.h"

namespace brrr::test {

TEST_CASE("fused programs give what eager ones do", "[fuse]") { check_fused_programs(cpu); }

TEST_CASE("random programs have eager's bits when they are fused", "[fuse]") {
  check_random_programs(cpu, 60, Mode::fused);
}

}  // namespace brrr::test
