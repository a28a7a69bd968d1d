#include "tests/harness/html_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

namespace brrr::testing {
namespace {

using Attributes = std::vector<std::pair<std::string, std::string>>;

std::optional<std::string> value_of(const Attributes& attributes, std::string_view name) {
  for (const auto& [each, value] : attributes)
    if (each == name) return value;
  return std::nullopt;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  std::vector<std::string> check() {
    check_bytes();
    while (at_ < text_.size() && problems_.size() < 20) {
      if (text_[at_] != '<') {
        read_text();
      } else if (text_.substr(at_).starts_with("</")) {
        read_end_tag();
      } else if (at_ == 0 && text_.starts_with("<!DOCTYPE html>\n")) {
        at_ = text_.find('\n');
      } else {
        read_start_tag();
      }
    }
    for (const Element& each : open_) report("<{}> is not closed", each.name);
    for (const std::string& id : references_)
      if (!ids_.contains(id)) report("no element has the id \"{}\"", id);
    return problems_;
  }

  int count(const std::string& name) const {
    return static_cast<int>(std::ranges::count(names_, name));
  }

 private:
  struct Element {
    std::string name;
    Attributes attributes;
    std::vector<std::string> children;
    std::string text;
  };

  template <class... A>
  void report(fmt::format_string<A...> format, A&&... values) {
    const auto line =
        std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    problems_.push_back(fmt::format("line {}: ", line + 1) +
                        fmt::format(format, std::forward<A>(values)...));
  }

  // UTF-8 without control characters.
  void check_bytes() {
    int following = 0;
    for (at_ = 0; at_ < text_.size(); ++at_) {
      const auto byte = static_cast<std::uint8_t>(text_[at_]);
      const bool follows = (byte & 0xc0) == 0x80;
      if (follows != (following > 0)) return report("byte {:#x} is not UTF-8", byte);
      if (follows) {
        --following;
      } else if (byte >= 0xc2 && byte <= 0xf4) {
        following = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
      } else if (byte >= 0x7f || (byte < 0x20 && byte != '\n' && byte != '\t')) {
        return report("byte {:#x} is not text", byte);
      }
    }
    at_ = 0;
  }

  void check_references(std::string_view text) {
    for (std::size_t i = text.find('&'); i != std::string_view::npos; i = text.find('&', i + 1)) {
      const std::string_view rest = text.substr(i);
      if (!std::ranges::any_of(std::array{"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"},
                               [&](const char* known) { return rest.starts_with(known); }))
        report("a bare & in \"{}\"", rest.substr(0, 12));
    }
    if (text.find('>') != std::string_view::npos) report("a bare > in \"{}\"", text.substr(0, 40));
  }

  void read_text() {
    const std::size_t end = std::min(text_.find('<', at_), text_.size());
    const std::string_view text = text_.substr(at_, end - at_);
    check_references(text);
    const bool blank = std::ranges::all_of(text, [](char c) { return c == ' ' || c == '\n'; });
    if (open_.empty() && !blank) report("text outside of the document");
    if (!open_.empty()) open_.back().text += text;
    at_ = end;
  }

  void read_end_tag() {
    const std::size_t end = text_.find('>', at_);
    if (end == std::string_view::npos) return stop("a tag does not end");
    const std::string name(text_.substr(at_ + 2, end - at_ - 2));
    if (open_.empty() || open_.back().name != name)
      return stop(fmt::format("</{}> closes <{}>", name, open_.empty() ? "" : open_.back().name));
    check_closed(open_.back());
    open_.pop_back();
    at_ = end + 1;
  }

  void read_start_tag() {
    std::size_t end = ++at_;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])))) ++end;
    Element element{std::string(text_.substr(at_, end - at_)), {}, {}, {}};
    if (element.name.empty()) return stop("a bare <");
    at_ = end;
    if (!read_attributes(element)) return;
    names_.push_back(element.name);
    if (!open_.empty()) open_.back().children.push_back(element.name);
    check_attributes(element);
    const bool empty = text_.substr(at_).starts_with("/>");
    at_ += empty ? 2 : 1;
    if (empty && !inside("svg")) report("<{}/> outside of an svg", element.name);
    if (empty || element.name == "meta") return;
    open_.push_back(element);
    if (is_one_of(element.name, {"script", "style"})) read_raw(element.name);
  }

  // Up to the > or /> of the tag.
  bool read_attributes(Element& element) {
    while (at_ < text_.size() && text_[at_] != '>' && !text_.substr(at_).starts_with("/>")) {
      if (text_[at_] != ' ') return stop(fmt::format("no space in <{}>", element.name)), false;
      const std::size_t equals = text_.find('=', ++at_);
      if (equals == std::string_view::npos || text_.substr(equals + 1, 1) != "\"")
        return stop(fmt::format("an attribute of <{}> without quotes", element.name)), false;
      const std::size_t close = text_.find('"', equals + 2);
      if (close == std::string_view::npos) return stop("a value does not end"), false;
      const std::string name(text_.substr(at_, equals - at_));
      const std::string_view value = text_.substr(equals + 2, close - equals - 2);
      const bool plain = !name.empty() && std::ranges::all_of(name, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '-';
      });
      if (!plain) return stop(fmt::format("an attribute named \"{}\"", name)), false;
      if (value_of(element.attributes, name)) report("{} is twice in <{}>", name, element.name);
      if (value.find('<') != std::string_view::npos) report("a bare < in {}", name);
      check_references(value);
      element.attributes.emplace_back(name, value);
      at_ = close + 1;
    }
    return at_ < text_.size() || (stop("a tag does not end"), false);
  }

  void check_attributes(const Element& element) {
    for (const auto& [name, value] : element.attributes) {
      if (name == "id" && !ids_.insert(value).second) report("the id \"{}\" is twice", value);
      if (is_one_of(name, {"src", "srcset", "data", "action", "poster", "style"}) ||
          name.starts_with("on"))
        report("{} has the attribute {}", element.name, name);
      if (name == "href" && !value.starts_with('#')) report("a reference to {}", value);
      if (name == "href") references_.insert(value.substr(1));
      if (name == "aria-labelledby") add_references(value);
      const bool number = is_one_of(name, {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "d",
                                           "width", "height", "viewBox"});
      if (number && (value.find("nan") != value.npos || value.find("inf") != value.npos))
        report("{} is \"{}\"", name, value.substr(0, 40));
    }
    if (is_one_of(element.name, {"link", "img", "iframe", "object", "embed", "image", "use"}))
      report("<{}> loads something", element.name);
  }

  void add_references(std::string_view ids) {
    while (!ids.empty()) {
      const std::size_t end = std::min(ids.find(' '), ids.size());
      references_.emplace(ids.substr(0, end));
      ids.remove_prefix(std::min(end + 1, ids.size()));
    }
  }

  // Of a script or a style: up to its end tag.
  void read_raw(const std::string& name) {
    const std::size_t end = text_.find("</" + name + ">", at_);
    if (end == std::string_view::npos) return stop("a script or style does not end");
    const std::string_view raw = text_.substr(at_, end - at_);
    for (const char* outside : {"url(", "@import", "http:", "https:", "fetch(", "import("})
      if (raw.find(outside) != raw.npos) report("<{}> contains {}", name, outside);
    at_ = end;
  }

  void check_closed(const Element& element) {
    if (is_one_of(element.name, {"title", "desc", "h1", "h2", "button"}) && element.text.empty())
      report("<{}> is empty", element.name);
    if (element.name != "svg") return;
    const std::vector<std::string> children(
        element.children.begin() + (element.children.size() > 2 && element.children[0] == "style"),
        element.children.end());
    if (children.size() < 2 || children[0] != "title" || children[1] != "desc")
      report("an svg without title and desc first");
    if (value_of(element.attributes, "role") != "img" ||
        !value_of(element.attributes, "aria-labelledby") ||
        !value_of(element.attributes, "viewBox") || value_of(element.attributes, "width"))
      report("an svg needs role=\"img\", aria-labelledby, viewBox, and no width");
  }

  bool inside(std::string_view name) const {
    return std::ranges::find(open_, name, &Element::name) != open_.end();
  }

  // What follows cannot be read.
  void stop(const std::string& why) {
    report("{}", why);
    open_.clear();
    at_ = text_.size();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Element> open_;
  std::vector<std::string> names_, problems_;
  std::set<std::string> ids_, references_;
};

}  // namespace

std::vector<std::string> problems_of_page(std::string_view html) {
  Checker checker(html);
  std::vector<std::string> problems = checker.check();
  if (!html.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"))
    problems.emplace_back("no doctype, or no language");
  for (const char* once : {"html", "head", "body", "main", "h1"}) {
    if (checker.count(once) != 1)
      problems.push_back(fmt::format("{} of <{}>", checker.count(once), once));
  }
  if (html.find("<meta name=\"viewport\" content=\"width=device-width") == html.npos)
    problems.emplace_back("no viewport");
  return problems;
}

std::vector<std::string> problems_of_svg(std::string_view svg) {
  Checker checker(svg);
  std::vector<std::string> problems = checker.check();
  if (!svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") || checker.count("svg") != 1)
    problems.emplace_back("not one svg");
  return problems;
}

}  // namespace brrr::testing
