// C++ in documents compiles. A block with `int main` is a program. Any other is the body of a
// function after `using namespace brrr;` and the code of a comment before the block, below its
// includes:
//
//   <!-- given: Tensor x = randn({3}); -->
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

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

// Includes of a block come before its function; the lines stay.
std::string without_includes(const std::string& text, std::string& includes) {
  std::istringstream lines(text);
  std::string line, body;
  while (std::getline(lines, line)) {
    const bool is_include = line.starts_with("#include");
    if (is_include) includes += line + "\n";
    body += is_include ? "\n" : line + "\n";
  }
  return body;
}

std::string as_function(const Document& document, const CodeBlock& block, int number,
                        std::string& includes) {
  const std::string body = without_includes(block.text, includes);
  return "void block_" + std::to_string(number) + "() {\nusing namespace brrr;\n" +
         line_marker(document, block.line) + block.given + "\n" +
         line_marker(document, block.line) + body + "}\n";
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
  std::string includes = kIncludes, functions;
  int count = 0;
  for (const Document& document : documents()) {
    for (const CodeBlock& block : document.blocks) {
      if (block.language != "cpp" || !block.not_compiled.empty()) continue;
      ++count;
      if (is_program(block)) {
        CHECK(compiler_output(line_marker(document, block.line) + block.text) == "");
      } else {
        functions += as_function(document, block, count, includes);
      }
    }
  }
  CHECK(count >= 10);
  CHECK(compiler_output(includes + functions) == "");
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
  std::string includes = kIncludes;
  const std::string function = as_function(document, document.blocks[0], 1, includes);
  CHECK_THAT(compiler_output(includes + function),
             Catch::Contains("docs/a.md:3") && Catch::Contains("exq"));
}
