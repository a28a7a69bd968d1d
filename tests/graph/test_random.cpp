#include "tests/harness/catch.h"
#include "tests/harness/compile_random.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("compile: random programs have eager's bits", "[compile-random]") {
  check_random_programs(cpu, 2000);
}

TEST_CASE("compile: random programs have eager's bits with values computed again",
          "[compile-random][remat]") {
  check_random_programs(cpu, 1000, Mode::graph, true);
}
