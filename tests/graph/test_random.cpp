#include "tests/harness/catch.h"
#include "tests/harness/compile_random.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("compile: random programs have eager's bits", "[compile-random]") {
  check_random_programs(cpu, 2000);
}
