// C++ in documents compiles. A block with `int main` is a program. Any other is the body of a
// function after `using namespace brrr;` and the code of a comment before the block:
//
//   <!-- given: Tensor x = randn({3}); -->
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/docs/markdown.h"
#include "tests/harness/catch.h"
#include "tests/harness/source_tree.h"

using namespace brrr::docs;

namespace {

bool is_program(const CodeBlock& block) {
  return block.text.find("int main(") != std::string::npos;
}

std::string line_marker(const Document& document, int line) {
  return "#line " + std::to_string(line) + " \"" + document.path + "\"\n";
}

std::string as_function(const Document& document, const CodeBlock& block, int number) {
  return "void block_" + std::to_string(number) + "() {\nusing namespace brrr;\n" +
         line_marker(document, block.line) + block.given + "\n" +
         line_marker(document, block.line) + block.text + "}\n";
}

// Compiles a text, without writing an object. Returns what the compiler says; empty: it compiles.
std::string compiler_output(const std::string& text) {
  char name[] = "/tmp/brrr-docs-XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  const std::string folder = name;
  std::ofstream(folder + "/blocks.cpp") << text;
  const Ran ran =
      run(std::string(BRRR_DOCS_COMPILER) +
          " -std=c++20 -fsyntax-only -Wall -Werror -Wno-unused-variable"
          " -Wno-unused-but-set-variable -Wno-unused-value -Wno-unused-local-typedefs -I '" +
          brrr::testing::source_path("include") + "' '" + folder + "/blocks.cpp'");
  std::filesystem::remove_all(folder);
  return ran.status == 0 ? "" : "status " + std::to_string(ran.status) + "\n" + ran.output;
}

const char kIncludes[] =
    "#include <brrr/brrr.h>\n#include <cstdint>\n#include <iostream>\n#include <string>\n#include "
    "<vector>\n";

}  // namespace

TEST_CASE("C++ in documents compiles", "[docs]") {
  std::string functions = kIncludes;
  int count = 0;
  for (const Document& document : documents()) {
    for (const CodeBlock& block : document.blocks) {
      if (block.language != "cpp" || !block.not_compiled.empty()) continue;
      ++count;
      if (is_program(block)) {
        CHECK(compiler_output(line_marker(document, block.line) + block.text) == "");
      } else {
        functions += as_function(document, block, count);
      }
    }
  }
  CHECK(count >= 10);
  CHECK(compiler_output(functions) == "");
}

TEST_CASE("C++ in documents is in blocks that are compiled", "[docs]") {
  static const std::regex statement(R"((^|\n)[^\n$#]*;( *//[^\n]*)?\n)");
  for (const Document& document : documents()) {
    if (document.path == "CHANGELOG.md") continue;
    for (const CodeBlock& block : document.blocks) {
      if (block.fenced && !block.language.empty()) continue;
      INFO(document.at(block.line) << ": begin this block with ```cpp");
      CHECK_FALSE(std::regex_search(block.text, statement));
    }
  }
}

TEST_CASE("the check of C++ sees what does not compile", "[docs]") {
  const Document document = parse(
      "docs/a.md", "<!-- given: Tensor x = zeros({2}); -->\n```cpp\nTensor y = exq(x);\n```\n");
  REQUIRE(document.blocks.size() == 1);
  CHECK_THAT(compiler_output(kIncludes + as_function(document, document.blocks[0], 1)),
             Catch::Contains("docs/a.md:3") && Catch::Contains("exq"));
}
