// A cache directory of its own for one scope.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/harness/environment.h"

namespace brrr::test {

struct OwnCache {
  std::string path;
  EnvironmentVariable variable;

  OwnCache() : path(make()), variable("BRRR_CACHE_DIR", path) {}
  ~OwnCache() { std::filesystem::remove_all(path); }
  OwnCache(const OwnCache&) = delete;
  OwnCache& operator=(const OwnCache&) = delete;

 private:
  static std::string make() {
    char name[] = "/tmp/brrr-cache-XXXXXX";
    return ::mkdtemp(name) ? name : "";
  }
};

}  // namespace brrr::test
