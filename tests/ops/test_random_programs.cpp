// Random programs on the CPU against the interpreter. BRRR_SEED=n runs that one seed and prints its
// program; BRRR_PROGRAMS=n runs so many.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"
#include "tests/harness/catch.h"
#include "tests/harness/random_programs.h"

using namespace brrr;
using namespace brrr::test;

namespace {

std::string problem_of(const Program& program) {
  try {
    return program_difference(program, execute(program, inputs_of(program, cpu)));
  } catch (const std::exception& error) {
    return std::string("threw ") + error.what();
  }
}

// The same on a stream of its own, where every op runs later on another thread.
std::string problem_on_queue(const Program& program) {
  const Stream stream(cpu);
  const StreamGuard guard(stream);
  return problem_of(program);
}

constexpr Numbers kNumbers[] = {Numbers::exact_f32, Numbers::smooth_f64, Numbers::exact_i64,
                                Numbers::exact_i32};

Program program_of(std::uint64_t seed) {
  return draw_program(seed, kNumbers[seed % 4], 5 + static_cast<int>(seed % 36));
}

}  // namespace

TEST_CASE("a program is made again from its seed", "[random-programs]") {
  CHECK(program_of(12).text() == program_of(12).text());
  CHECK(program_of(12).text() != program_of(16).text());
  const Program program = program_of(35);
  CHECK(program.steps.size() >= 30);
}

TEST_CASE("random programs agree with the interpreter", "[random-programs]") {
  const char* seed_asked = std::getenv("BRRR_SEED");
  const char* count_asked = std::getenv("BRRR_PROGRAMS");
  const std::uint64_t first = seed_asked ? std::strtoull(seed_asked, nullptr, 10) : 1;
  const std::uint64_t count = seed_asked    ? 1
                              : count_asked ? std::strtoull(count_asked, nullptr, 10)
                                            : 500;
  long steps = 0, failed = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = program_of(seed);
    steps += static_cast<long>(program.steps.size());
    if (seed_asked) std::printf("%s", program.text().c_str());
    const std::string problem = problem_of(program);
    if (problem.empty()) continue;
    if (++failed > 5) continue;
    const Program small = shrink(program, [](const Program& p) { return !problem_of(p).empty(); });
    INFO("replay with BRRR_SEED=" << seed << "\n" << small.text() << problem_of(small));
    CHECK(problem.empty());
  }
  std::printf("random programs: %llu, %ld steps\n", static_cast<unsigned long long>(count), steps);
  CHECK(failed == 0);
}

TEST_CASE("random programs on a CPU stream agree with the interpreter", "[random-programs]") {
  long failed = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Program program = program_of(seed);
    const std::string problem = problem_on_queue(program);
    if (problem.empty()) continue;
    if (++failed > 5) continue;
    INFO(program.text() << problem);
    CHECK(problem.empty());
  }
  CHECK(failed == 0);
}
