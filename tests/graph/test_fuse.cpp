// Fused steps on the CPU have eager's bits, compiled or interpreted.
#include "tests/harness/catch.h"
#include "tests/harness/compile_random.h"
#include "tests/harness/environment.h"
#include "tests/harness/fused_programs.h"

namespace brrr::test {

TEST_CASE("fused programs give what eager ones do", "[fuse]") {
  const EnvironmentVariable compiled("BRRR_CPU_KERNELS", "compiled");
  check_fused_programs(cpu);
}

TEST_CASE("random programs have eager's bits when they are fused", "[fuse]") {
  const EnvironmentVariable compiled("BRRR_CPU_KERNELS", "compiled");
  check_random_programs(cpu, 60, Mode::fused);
}

TEST_CASE("interpreted kernels give what eager ops do", "[fuse]") {
  const EnvironmentVariable interpreted("BRRR_CPU_KERNELS", "interpreted");
  check_fused_programs(cpu);
  check_random_programs(cpu, 60, Mode::fused);
}

}  // namespace brrr::test
