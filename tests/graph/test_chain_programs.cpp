// Steps of long chains with many readers have eager's bits in every mode on the CPU.
#include "tests/harness/body_interpreter.h"
#include "tests/harness/catch.h"
#include "tests/harness/chain_programs.h"
#include "tests/harness/environment.h"

namespace brrr::test {

TEST_CASE("solvers and cells and inner gradients have eager's bits in every mode",
          "[fuse][chains]") {
  for (const ChainProgram& program : named_chain_programs()) {
    INFO(program.name);
    CHECK(chain_difference(program, Mode::graph) == "");
    CHECK(chain_difference(program, Mode::fused) == "");
    CHECK(chain_difference(program, Mode::graph, Remat::full()) == "");
  }
}

TEST_CASE("random chains of small calls have eager's bits when they are fused", "[fuse][chains]") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const ChainProgram program = draw_chain_program(seed);
    INFO(program.name << ", seed " << seed);
    CHECK(chain_difference(program, Mode::fused, seed % 2 ? Remat::none() : Remat::full()) == "");
  }
}

TEST_CASE("random chains of small calls have eager's bits when they are interpreted",
          "[fuse][chains]") {
  const Interpreted interpreted;
  for (std::uint64_t seed = 6; seed <= 26; ++seed) {
    const ChainProgram program = draw_chain_program(seed);
    INFO(program.name << ", seed " << seed);
    CHECK(chain_difference(program, Mode::graph) == "");
    CHECK(chain_difference(program, Mode::fused, seed % 3 ? Remat::none() : Remat::full()) == "");
  }
}

}  // namespace brrr::test
