// The main of both executables of tests, for Catch2 2 and 3.
#define CATCH_CONFIG_RUNNER
#include "tests/harness/catch.h"

#include <cstdio>
#include <cstdlib>

#include "brrr/tensor/sanitizers.h"
#include "tests/harness/skip.h"
#include "tests/harness/suite.h"

#if BRRR_ASAN || BRRR_TSAN
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }
// Sanitizers return null for huge allocations, as malloc does: a test asks for one.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
#endif

namespace {

long skipped = 0;

// Catch counts a test that returned early as passed.
class SkipTotals : public Catch::TestEventListenerBase {
 public:
  using Catch::TestEventListenerBase::TestEventListenerBase;
  void testRunEnded(const Catch::TestRunStats& stats) override {
    const auto& cases = stats.totals.testCases;
    if (skipped > 0) {
      std::printf("brrr-tests: %ld passed, %ld failed, %ld skipped\n",
                  static_cast<long>(cases.passed) - skipped, static_cast<long>(cases.failed),
                  skipped);
    }
  }
};
CATCH_REGISTER_LISTENER(SkipTotals)

}  // namespace

void brrr::testing::skip(const std::string& why) {
  ++skipped;
  std::printf("SKIPPED: %s: %s\n", Catch::getResultCapture().getCurrentTestName().c_str(),
              why.c_str());
}

int main(int argc, char** argv) {
  // Tests say what a step must be fused to; those of choices by times turn these on.
  ::setenv("BRRR_MEASURE", "off", 0);
  if (const std::string why = brrr::testing::prepare_suite(); !why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 77;  // which CTest takes for "skipped"
  }
  const int failed = Catch::Session().run(argc, argv);
  return failed > 255 ? 255 : failed;
}
