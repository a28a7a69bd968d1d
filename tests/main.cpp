// The tests' own main, for Catch2 2 and 3. The GPU executable says in one line why it skips and
// exits with 77, which CTest takes for "skipped".
#define CATCH_CONFIG_RUNNER
#include "tests/catch.h"

#include <cstdio>

#include "tensor/sanitizers.h"
#include "tests/skip.h"

#ifdef BRRR_GPU_TESTS
#include "tensor/runtime.h"
#else
#include <cstdlib>
#include <filesystem>
#include <string>
#endif

#if BRRR_ASAN || BRRR_TSAN
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }
// A test asks for more memory than there is and wants to be told so, as malloc does.
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

#ifndef BRRR_GPU_TESTS
namespace {

// Tests leave the user's cache of compiled kernels alone: a fake compiler writes into it what no
// GPU can load.
class OwnCache {
 public:
  OwnCache() {
    char name[] = "/tmp/brrr-tests-XXXXXX";
    if (const char* made = mkdtemp(name)) {
      path_ = made;
      setenv("BRRR_CACHE_DIR", made, 1);
    }
  }
  ~OwnCache() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::string path_;
};

}  // namespace
#endif

int main(int argc, char** argv) {
#ifdef BRRR_GPU_TESTS
  if (!brrr::cuda_is_available()) {
    std::printf("SKIPPED: no GPU tests were run: %s\n", brrr::cuda_runtime().why_none().c_str());
    return 77;
  }
#else
  const OwnCache cache;
#endif
  const int failed = Catch::Session().run(argc, argv);
  return failed > 255 ? 255 : failed;
}
