#include "tests/harness/source_tree.h"

std::string brrr::testing::source_path(const std::string& path) {
  return BRRR_SOURCE_DIR "/" + path;
}
