#include "tests/harness/golden_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/harness/catch.h"
#include "tests/harness/source_tree.h"

namespace brrr::testing {

void check_golden(const std::string& name, const std::string& text, const std::string& tag) {
  const std::string path = source_path("tests/golden/" + name + ".txt");
  if (std::getenv("BRRR_WRITE_GOLDEN")) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    return;
  }
  std::ifstream in(path);
  const std::string wanted{std::istreambuf_iterator<char>(in), {}};
  INFO(path << " differs from what is made; if that is meant, write the files again with\n"
            << "BRRR_WRITE_GOLDEN=1 build/release/bin/brrr_tests '[" << tag << "]'");
  CHECK(text == wanted);
}

std::set<std::string> golden_files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& file :
       std::filesystem::directory_iterator(source_path("tests/golden/" + folder)))
    names.insert(file.path().filename().string());
  return names;
}

}  // namespace brrr::testing
