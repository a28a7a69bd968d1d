// Comments of headers: each header begins with one, and names in `backticks` exist.
#include <filesystem>
#include <regex>
#include <set>

#include "tests/docs/markdown.h"
#include "tests/harness/catch.h"
#include "tests/harness/source_tree.h"

using namespace brrr::docs;
namespace fs = std::filesystem;

namespace {

const std::regex kName("[A-Za-z_][A-Za-z0-9_]*");

// Files of the library and the program with one of these extensions.
std::vector<std::string> sources(const std::set<std::string>& extensions) {
  std::vector<std::string> found;
  const fs::path root = brrr::testing::source_path("");
  for (const char* folder :
       {"tensor", "dispatch", "ops", "io", "autograd", "graph", "nn", "measure", "cli"}) {
    for (const auto& each : fs::recursive_directory_iterator(root / folder)) {
      if (extensions.count(each.path().extension()) > 0)
        found.push_back(each.path().lexically_relative(root));
    }
  }
  return found;
}

// A line without its comment, and the comment.
std::pair<std::string, std::string> parted(const std::string& line) {
  const std::size_t at = line.find("//");
  return {line.substr(0, at), at == std::string::npos ? "" : line.substr(at)};
}

void collect_names(const std::string& text, std::set<std::string>& names) {
  for (std::sregex_iterator it(text.begin(), text.end(), kName), end; it != end; ++it)
    names.insert((*it)[0]);
}

// The names in `backticks` that have nothing else in them: `async`, `Stream::wait`, `update()`.
std::set<std::string> names_in_spans(const std::string& comment) {
  static const std::regex span("`([A-Za-z_][A-Za-z0-9_:.()]*)`");
  std::set<std::string> names;
  for (std::sregex_iterator it(comment.begin(), comment.end(), span), end; it != end; ++it)
    collect_names((*it)[1], names);
  return names;
}

}  // namespace

TEST_CASE("a header begins with what it owns", "[docs]") {
  for (const std::string& path : sources({".h"})) {
    INFO(path);
    CHECK(text_of(path).starts_with("// "));
  }
}

TEST_CASE("names in backticks in headers' comments exist", "[docs]") {
  std::set<std::string> names;
  for (const std::string& path : sources({".h", ".cpp", ".inl", ".cu", ".def"})) {
    for (const std::string& line : lines_of(text_of(path)))
      collect_names(parted(line).first, names);
  }
  int count = 0;
  for (const std::string& path : sources({".h"})) {
    for (const std::string& line : lines_of(text_of(path))) {
      for (const std::string& name : names_in_spans(parted(line).second)) {
        ++count;
        INFO(path << ": `" << name << "`");
        CHECK(names.count(name) == 1);
      }
    }
  }
  CHECK(count > 100);
  CHECK(names_in_spans("// `async`, `a + b`, `Stream::wait()`") ==
        std::set<std::string>{"Stream", "async", "wait"});
}
