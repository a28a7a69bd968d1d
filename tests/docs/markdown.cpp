#include "tests/docs/markdown.h"

#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tests/harness/source_tree.h"

namespace brrr::docs {
namespace {

// The anchor that GitHub gives a heading.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '-' || c == '_' || byte >= 0x80)
      anchor += static_cast<char>(std::tolower(byte));
    else if (c == ' ')
      anchor += '-';
  }
  return anchor;
}

// Takes `code` out of a line, so that what is in it is no link.
std::string take_spans(const std::string& line, int number, Document& document) {
  static const std::regex span("(`+)(.*?[^`])\\1(?!`)");
  std::string rest;
  auto last = line.cbegin();
  for (std::sregex_iterator it(line.begin(), line.end(), span), end; it != end; ++it) {
    rest.append(last, (*it)[0].first).append("code");
    last = (*it)[0].second;
    static const std::regex bar(R"(\\\|)");
    document.spans.push_back({number, std::regex_replace((*it)[2].str(), bar, "|")});
  }
  return rest.append(last, line.cend());
}

void take_links(const std::string& line, int number, Document& document) {
  static const std::regex link(R"_(\]\(([^)\s]+)\)|(?:href|src)="([^"]+)")_");
  for (std::sregex_iterator it(line.begin(), line.end(), link), end; it != end; ++it)
    document.links.push_back({number, (*it)[(*it)[1].matched ? 1 : 2].str()});
}

bool is_blank(const std::string& line) {
  return std::all_of(line.begin(), line.end(),
                     [](unsigned char c) { return std::isspace(c) != 0; });
}

// Reads a document line by line.
class Parser {
 public:
  Parser(std::string path, const std::string& text) : lines_(lines_of(text)) {
    document_.path = std::move(path);
  }

  Document parse() {
    while (at_ < lines_.size()) {
      const std::string& line = lines_[at_];
      if (line.starts_with("```"))
        fenced_block();
      else if (line.starts_with("    ") && !is_blank(line) && after_blank_ && !in_list_)
        indented_block();
      else if (line.starts_with("<!--"))
        comment();
      else
        text_line(line);
    }
    return std::move(document_);
  }

 private:
  void add_block(CodeBlock block) {
    block.given = std::exchange(given_, "");
    block.not_compiled = std::exchange(not_compiled_, "");
    document_.blocks.push_back(std::move(block));
    after_blank_ = false;
  }

  void fenced_block() {
    CodeBlock block;
    block.fenced = true;
    block.language = lines_[at_].substr(3);
    block.line = static_cast<int>(++at_) + 1;
    while (at_ < lines_.size() && !lines_[at_].starts_with("```"))
      block.text += lines_[at_++] + "\n";
    if (at_ == lines_.size())
      throw std::runtime_error(document_.at(block.line) + ": expected ``` after this block");
    ++at_;
    add_block(std::move(block));
  }

  void indented_block() {
    CodeBlock block;
    block.line = static_cast<int>(at_) + 1;
    std::string blank;
    for (; at_ < lines_.size(); ++at_) {
      const std::string& line = lines_[at_];
      if (is_blank(line)) {
        blank += "\n";
      } else if (line.starts_with("    ")) {
        block.text += std::exchange(blank, "") + line.substr(4) + "\n";
      } else {
        break;
      }
    }
    add_block(std::move(block));
    after_blank_ = true;
  }

  void comment() {
    std::string text;
    while (at_ < lines_.size()) {
      text += lines_[at_] + "\n";
      if (lines_[at_++].find("-->") != std::string::npos) break;
    }
    text = text.substr(4, text.find("-->") - 4);
    const auto after = [&](const std::string& key) {
      const std::size_t found = text.find(key);
      return found == std::string::npos ? std::string() : text.substr(found + key.size());
    };
    if (const std::string code = after("given:"); !code.empty()) given_ = code;
    if (const std::string reason = after("not compiled:"); !reason.empty()) not_compiled_ = reason;
  }

  void text_line(const std::string& line) {
    const int number = static_cast<int>(++at_);
    after_blank_ = is_blank(line);
    if (after_blank_) return;
    if (line[0] != ' ') in_list_ = line.starts_with("- ") || std::isdigit(line[0]) != 0;
    const std::size_t hashes = line.find_first_not_of('#');
    std::string text = line;
    if (hashes != 0 && hashes != std::string::npos && line[hashes] == ' ') {
      text.erase(std::remove(text.begin(), text.end(), '`'), text.end());
      document_.anchors.push_back(anchor_of(text.substr(hashes + 1)));
    }
    take_links(take_spans(line, number, document_), number, document_);
  }

  const std::vector<std::string> lines_;
  std::size_t at_ = 0;
  bool after_blank_ = true;  // an indented block follows an empty line
  bool in_list_ = false;     // whose paragraphs are indented too
  std::string given_, not_compiled_;
  Document document_;
};

}  // namespace

Document parse(std::string path, const std::string& text) {
  return Parser(std::move(path), text).parse();
}

std::vector<Document> documents() {
  namespace fs = std::filesystem;
  const fs::path root = testing::source_path("");
  std::vector<std::string> paths;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::end(it); ++it) {
    const std::string name = it->path().filename();
    if (it->is_directory() && (name.starts_with("build") || name.starts_with(".")))
      it.disable_recursion_pending();
    else if (name.ends_with(".md"))
      paths.push_back(it->path().lexically_relative(root));
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Document> found;
  for (const std::string& path : paths) found.push_back(parse(path, text_of(path)));
  return found;
}

std::string text_of(const std::string& path) {
  std::ifstream in(testing::source_path(path));
  if (!in) throw std::runtime_error("expected a file " + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

Ran run(const std::string& command) {
  Ran ran;
  FILE* const pipe = popen(("( " + command + "\n) 2>&1 </dev/null").c_str(), "r");
  if (!pipe) throw std::runtime_error("expected to run " + command);
  char part[4096];
  while (const std::size_t n = std::fread(part, 1, sizeof part, pipe)) ran.output.append(part, n);
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

}  // namespace brrr::docs
