// Steps of long chains with many readers on CUDA without a GPU: each is planned without a refusal,
// and each kernel of it compiles.
#include "brrr/graph/compile.h"
#include "brrr/ops/matmul.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/fake_cuda/real_compiler.h"
#include "tests/harness/captured_stderr.h"
#include "tests/harness/catch.h"
#include "tests/harness/chain_programs.h"
#include "tests/harness/op_harness.h"

namespace brrr::test {
namespace {

// What a step of the program says or throws.
std::string complaint_of(const ChainProgram& program, Remat remat = Remat::none()) {
  std::string thrown;
  const std::string said = stderr_of([&] {
    try {
      Training training(program, cuda(0));
      auto step = compile([&](const Tensors& in) { return training(in); },
                          {.mode = Mode::fused, .remat = remat, .fallback = OnFallback::refuse});
      step(training.arguments(0));
    } catch (const Error& error) {
      thrown = error.what();
    }
  });
  return said + thrown;
}

}  // namespace

TEST_CASE("chains of small calls are planned on CUDA", "[fuse][chains]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  std::vector<ChainProgram> programs = named_chain_programs();
  for (std::uint64_t seed = 1; seed <= 49; ++seed) programs.push_back(draw_chain_program(seed));
  for (const ChainProgram& program : programs) {
    INFO(program.name);
    CHECK(complaint_of(program) == "");
    const MatmulPrecisionGuard tf32(Precision::tf32);  // generated products
    CHECK(complaint_of(program) == "");
    fake.run_all();
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("every kernel of chains of small calls compiles", "[fuse][chains][kernels]") {
  if (!testing::has_nvrtc_or_skips() || !in_this_part("chains")) return;
  const testing::NoDiskCache off;
  std::vector<std::string> texts;
  {
    testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
    for (const ChainProgram& program : named_chain_programs()) {
      CHECK(complaint_of(program) == "");
      fake.run_all();
    }
    texts = testing::fused_texts(fake);
  }
  testing::check_real_kernels(texts, 90);
}

}  // namespace brrr::test
