// README's program is a file of examples/, which is compiled and run.
#include <fstream>
#include <sstream>
#include <string>

#include "tests/harness/catch.h"
#include "tests/harness/source_tree.h"

namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(brrr::testing::source_path(path));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("README's program is the example that is run", "[layering]") {
  const std::string readme = text_of("README.md");
  const std::string open = "```cpp\n";
  const std::size_t begin = readme.find(open);
  REQUIRE(begin != std::string::npos);
  const std::size_t start = begin + open.size();
  const std::string program = readme.substr(start, readme.find("```", start) - start);
  const std::string example = text_of("examples/three_modes.cpp");
  CHECK(program == example.substr(example.find('\n') + 1));  // but for the comment that names it
}
