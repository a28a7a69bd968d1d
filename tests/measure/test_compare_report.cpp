// The report of a comparison: no figure more often than needed, one table of the parts of a step.
#include "brrr/measure/compare_report.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "brrr/measure/bench.h"
#include "brrr/measure/compare_text.h"
#include "brrr/measure/kernel_groups.h"
#include "brrr/measure/text.h"
#include "brrr/measure/verdict_text.h"
#include "tests/harness/catch.h"
#include "tests/harness/comparisons.h"
#include "tests/harness/html_checker.h"

using namespace brrr;
using Catch::Contains;

namespace {

std::string page_of(const measure::Comparison& comparison) {
  std::string html = measure::to_html(measure::compare_report(comparison, {}, "brrr compare"), "f");
  CHECK(testing::problems_of_page(html) == std::vector<std::string>());
  return html;
}

// What a reader sees of a page: no tags, styles, scripts, and descriptions for screen readers.
std::string visible_text(std::string html) {
  for (const char* hidden : {"style", "script", "desc", "title", "head"}) {
    const std::string end = std::string("</") + hidden + ">";
    for (std::size_t at = 0; (at = html.find(std::string("<") + hidden, at)) != html.npos;) {
      const char after = html[at + 1 + std::string(hidden).size()];
      if (after != '>' && after != ' ') {
        ++at;
        continue;
      }
      html.erase(at, html.find(end, at) + end.size() - at);
    }
  }
  std::string text;
  bool in_tag = false;
  for (const char c : html) {
    if (c == '<') in_tag = true;
    if (!in_tag) text += c;
    if (c == '>') {
      in_tag = false;
      text += ' ';
    }
  }
  return text;
}

// Numbers with three digits or more that are not those of shapes and sizes that were asked for.
std::map<std::string, int> figures_in(const std::string& text) {
  std::map<std::string, int> figures;
  for (std::size_t at = 0; at < text.size();) {
    if (std::isdigit(static_cast<unsigned char>(text[at])) == 0) {
      ++at;
      continue;
    }
    const std::size_t end = std::min(text.find_first_not_of("0123456789.", at), text.size());
    const std::string number = text.substr(at, end - at);
    const auto digits = std::ranges::count_if(
        number, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
    if (digits >= 3 && number.find('.') != number.npos) ++figures[number];
    at = end;
  }
  return figures;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

}  // namespace

TEST_CASE("no figure is in a report more than twice", "[compare][report]") {
  for (const auto& [name, comparison] : testing::prepared_comparisons()) {
    const std::string text = visible_text(page_of(comparison));
    INFO(name << ": " << text);
    for (const auto& [figure, times] : figures_in(text)) {
      INFO(figure);
      CHECK(times <= 2);
    }
    // In whichever unit: a plot and a table, or a line and a table.
    for (const measure::Side& side : comparison.sides) {
      const std::string in_us = " " + measure::number_text(side.step->median * 1e6) + " ",
                        by_size = " " + measure::time_text(side.step->median);
      INFO(in_us << by_size);
      CHECK(count(text, in_us) + (by_size.starts_with(in_us) ? 0 : count(text, by_size)) <= 2);
    }
  }
}

TEST_CASE("page, document and terminal name the parts of a step by one table",
          "[compare][report]") {
  const auto comparisons = testing::prepared_comparisons();
  const auto all = std::ranges::find(comparisons, "crowded", [](const auto& e) { return e.first; });
  const std::string page = page_of(all->second), json = measure::to_json(all->second, {}),
                    details = measure::details_text(all->second);
  for (const measure::ShownShare& each : measure::kShownShares) {
    CHECK_THAT(page, Contains(std::string(">") + each.name + "</text>") &&
                         Contains(std::string(">") + name_of(each.regime) + "</th>"));
    CHECK_THAT(json, Contains(std::string("\"") + name_of(each.regime) + "\": 0."));
    CHECK_THAT(details, Contains(name_of(each.regime)) &&
                            Contains(std::string(1, each.letter) + " " + each.name));
  }
  // Parts that no mode has are not there.
  const std::string pure = page_of(comparisons.front().second);
  CHECK_THAT(pure, !Contains("inefficient") && !Contains(">user<") && !Contains("own code"));
}

TEST_CASE("what was tried is in a table of the report", "[compare][report]") {
  for (const auto& [name, comparison] : testing::prepared_comparisons()) {
    const std::string page = page_of(comparison);
    for (const measure::Tried& each : comparison.tried)
      CHECK_THAT(page, Contains("<th scope=\"row\">" + each.name + "</th>"));
    CHECK((page.find("Changes that were tried") == page.npos) == comparison.tried.empty());
  }
}

TEST_CASE("a kernel of several modules is named by what these have in common",
          "[compare][report]") {
  const auto group_of = [](std::vector<std::string> modules) {
    return measure::KernelGroup{.modules = std::move(modules), .phases = {"backward"}};
  };
  CHECK(group_of({}).where() == "backward");
  CHECK(group_of({"layers.0"}).where() == "layers.0, backward");
  CHECK(group_of({"layers.0.norm", "layers.1.norm"}).where() == "layers.*.norm, backward");
  CHECK(group_of({"encoder", "layers.0", "layers.1"}).module() == "encoder and 2 more");
  measure::Side side;
  for (const char* module : {"layers.0", "layers.3", ""}) {
    core::LaunchCost& launch = side.launches.emplace_back();
    launch.name = "matmul";
    launch.module = module;
  }
  const std::vector<measure::KernelGroup> groups = measure::grouped(side);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].count == 3);
  CHECK(groups[0].where() == "layers.*, forward");
}
