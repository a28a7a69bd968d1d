// The tests' own main, for Catch2 2 and 3. The GPU executable says in one line why it skips and exits with 77, which
// CTest takes for "skipped".
#define CATCH_CONFIG_RUNNER
#include "tests/catch.h"

#ifdef BRRR_GPU_TESTS
#include <cstdio>

#include "tensor/runtime.h"
#endif

int main(int argc, char** argv) {
#ifdef BRRR_GPU_TESTS
  if (!brrr::cuda_is_available()) {
    std::printf("SKIPPED: no GPU tests were run: %s\n", brrr::cuda_runtime().why_none().c_str());
    return 77;
  }
#endif
  const int failed = Catch::Session().run(argc, argv);
  return failed > 255 ? 255 : failed;
}
