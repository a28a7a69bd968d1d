// The tests' own main, for Catch2 2 and 3. The GPU executable says in one line why it skips and
// exits with 77, which CTest takes for "skipped".
#define CATCH_CONFIG_RUNNER
#include "tests/catch.h"

#ifdef BRRR_GPU_TESTS
#include <cstdio>

#include "tensor/runtime.h"
#else
#include <cstdlib>
#include <filesystem>
#include <string>
#endif

#ifndef BRRR_GPU_TESTS
namespace {

// Tests leave the user's cache of compiled kernels alone: a fake compiler writes into it what no GPU can load.
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
