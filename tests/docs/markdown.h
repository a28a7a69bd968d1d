// The tree's Markdown documents, as far as their checks read them: headings, links, code.
#pragma once

#include <string>
#include <vector>

namespace brrr::docs {

struct Link {
  int line = 0;
  std::string target;  // "ops.md#types", "https://..."
};

// `code` in a line.
struct Span {
  int line = 0;
  std::string text;  // with | for a table's \|
};

// Lines of code, fenced or indented by four spaces.
struct CodeBlock {
  int line = 0;  // of its first line of code
  bool fenced = false;
  std::string language;  // after the fence: "cpp"
  std::string text;
  // What a comment before the block says: <!-- given: code that goes before the block -->, or
  // <!-- not compiled: reason -->.
  std::string given, not_compiled;
};

struct Document {
  std::string path;  // from the root of the tree
  std::vector<std::string> anchors;
  std::vector<Link> links;
  std::vector<Span> spans;
  std::vector<CodeBlock> blocks;

  // "docs/ops.md:12"
  std::string at(int line) const { return path + ":" + std::to_string(line); }
};

Document parse(std::string path, const std::string& text);

// README.md, CONTRIBUTING.md, CHANGELOG.md, docs/*.md and whatever else the tree has, but for build
// folders.
std::vector<Document> documents();

std::string text_of(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);

// The exit status of a shell command, and what it printed to stdout and stderr.
struct Ran {
  int status = 0;
  std::string output;
};
Ran run(const std::string& command);

}  // namespace brrr::docs
