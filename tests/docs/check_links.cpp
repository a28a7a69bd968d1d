// Links between documents, their anchors, and files that documents name.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "tests/docs/markdown.h"
#include "tests/harness/catch.h"
#include "tests/harness/source_tree.h"

using namespace brrr::docs;
namespace fs = std::filesystem;

namespace {

bool exists(const std::string& path) { return fs::exists(brrr::testing::source_path(path)); }

// Why a link leads nowhere; empty: it leads somewhere.
std::string problem_of(const Document& from, const std::string& target,
                       const std::vector<Document>& all) {
  if (target.starts_with("https://") || target.starts_with("http://")) return "";
  const std::size_t hash = target.find('#');
  const std::string file = target.substr(0, hash);
  const std::string path =
      file.empty() ? from.path
                   : (fs::path(from.path).parent_path() / file).lexically_normal().string();
  if (!exists(path)) return "there is no " + path;
  if (hash == std::string::npos) return "";
  const auto document =
      std::find_if(all.begin(), all.end(), [&](const Document& each) { return each.path == path; });
  if (document == all.end()) return path + " is no document, so it has no anchors";
  const std::string anchor = target.substr(hash + 1);
  if (std::count(document->anchors.begin(), document->anchors.end(), anchor) > 0) return "";
  return path + " has no heading with the anchor " + anchor;
}

// Every file of the tree, by its path, for names such as `memory_budget.cpp`.
std::set<std::string> file_names() {
  std::set<std::string> names;
  const fs::path root = brrr::testing::source_path("");
  for (auto it = fs::recursive_directory_iterator(root); it != fs::end(it); ++it) {
    const std::string name = it->path().filename();
    if (it->is_directory() && (name.starts_with("build") || name.starts_with(".")))
      it.disable_recursion_pending();
    else
      names.insert(name);
  }
  return names;
}

// `tensor/tensor.h`, `docs/`, `memory_budget.cpp`; not `x/y`, `main.cpp:41`.
bool names_file(const std::string& text) {
  static const std::regex file(
      R"([A-Za-z0-9_./-]+\.(h|cpp|inl|cu|def|md|json|cmake|awk|txt)|[a-z_]+(/[a-z_]+)*/)");
  return std::regex_match(text, file);
}

}  // namespace

TEST_CASE("links of documents lead to files and headings", "[docs]") {
  const std::vector<Document> all = documents();
  REQUIRE(all.size() >= 10);
  for (const Document& document : all) {
    for (const Link& link : document.links) {
      INFO(document.at(link.line) << ": (" << link.target << ")");
      CHECK(problem_of(document, link.target, all) == "");
    }
  }
}

TEST_CASE("files that documents name are in the tree", "[docs]") {
  const std::set<std::string> names = file_names();
  for (const Document& document : documents()) {
    if (document.path == "CHANGELOG.md") continue;  // what once was
    for (const Span& span : document.spans) {
      if (!names_file(span.text)) continue;
      INFO(document.at(span.line) << ": `" << span.text << "`");
      const bool has_folder = span.text.find('/') != std::string::npos;
      CHECK((exists(span.text) || (!has_folder && names.count(span.text) > 0)));
    }
  }
}

TEST_CASE("the checks of links see what is wrong", "[docs]") {
  const std::string text =
      "# A `first` one\n\n[a](#a-first-one) [b](#second) [c](no.md) `[d](no.md)`\n\n"
      "    [e](no.md)\n\n<img src=\"no.png\" alt=\"\">\n\n## Second\n";
  const std::vector<Document> all = {parse("docs/ops.md", text)};
  REQUIRE(all[0].links.size() == 4);
  CHECK(problem_of(all[0], all[0].links[3].target, all) == "there is no docs/no.png");
  CHECK(problem_of(all[0], "#a-first-one", all) == "");
  CHECK(problem_of(all[0], "#second", all) == "");
  CHECK(problem_of(all[0], "#third", all) == "docs/ops.md has no heading with the anchor third");
  CHECK(problem_of(all[0], "no.md", all) == "there is no docs/no.md");
  CHECK(problem_of(all[0], "../README.md", all) == "");
  CHECK(all[0].blocks.size() == 1);
  CHECK(names_file("ops/no_such_file.h"));
  CHECK_FALSE(names_file("sum(x, 1)"));
}
