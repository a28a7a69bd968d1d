// brrr_tests uses a private cache of compiled kernels: the fake compiler's output must not get into
// the user's.
#include <cstdlib>
#include <filesystem>

#include "tests/harness/suite.h"

namespace {

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

std::string brrr::testing::prepare_suite() {
  static const OwnCache cache;  // until the program ends
  return "";
}
