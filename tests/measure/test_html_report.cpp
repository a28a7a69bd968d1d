// Reports: valid pages whatever their text is; and the checker that says so.
#include "brrr/measure/html_report.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

#include "brrr/measure/flame_graph.h"
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"
#include "tests/harness/html_checker.h"

using namespace brrr::measure;
using brrr::testing::problems_of_page;
using Catch::Contains;

namespace {

const std::vector<std::string> kNone;
const std::string kHostile =
    "</p></section><script src=\"http://x\">alert(1)</script> ' \" & &amp; \x02\xf0\x9f";

Report report_of(const std::string& text) {
  Report report{.title = text, .facts = {{text, text}}};
  report.sections.push_back(
      {.title = text,
       .badge = text,
       .tone = Section::Tone::bad,
       .blocks = {Text{text}, Text{text, Text::Tone::warning},
                  Table{text, {text, text}, {{text, text}, {text, ""}}},
                  Figure{LinePlot{.title = text,
                                  .description = text,
                                  .x = {text, true},
                                  .y = {text, false},
                                  .series = {{text, {{1, 2}, {2, std::nan("")}}}}},
                         text},
                  Figure{BarPlot{.title = text,
                                 .description = text,
                                 .unit = text,
                                 .measures = {text},
                                 .groups = {{text, {3}}}},
                         ""},
                  Text{text},
                  Figure{RooflinePlot{.title = text,
                                      .description = text,
                                      .bandwidths = {{text, 1e9}},
                                      .computes = {{text, 1e10}},
                                      .kernels = {{text, 1e6, 1e6, 1e-3, 0.5}}},
                         text},
                  Figure{LanePlot{.title = text,
                                  .description = text,
                                  .x = text,
                                  .kinds = {text},
                                  .lanes = {{text, {{1, 2, 0}}}}},
                         text}}});
  return report;
}

}  // namespace

TEST_CASE("a report has the characters of its texts", "[report]") {
  const std::string page = to_html(
      {.title = "34 µs", .facts = {}, .sections = {{.title = "über", .blocks = {Text{"5 µs"}}}}},
      "a.json");
  CHECK_THAT(page, Contains("<h1>34 µs</h1>") && Contains(">über<") && Contains("5 µs"));
}

TEST_CASE("a report is a valid page that needs nothing else", "[report]") {
  Report report = report_of("plain");
  const std::string html = to_html(report, "plain.json");
  CHECK(problems_of_page(html) == kNone);
  CHECK_THAT(html, Contains("<title>plain</title>") && Contains("<code>plain.json</code>") &&
                       Contains("prefers-color-scheme: dark") && !Contains("<nav"));
  while (report.sections.size() < 3) report.sections.push_back(report.sections[0]);
  const std::string longer = to_html(report, "plain.json");
  CHECK(problems_of_page(longer) == kNone);  // ids of plots and sections are unique
  CHECK_THAT(longer, Contains("<nav") && Contains("<a href=\"#section-3\">"));
}

TEST_CASE("a picture stands in a report as it is", "[report]") {
  const std::string flame = flame_svg({}, {.title = "empty"});
  Report report{.title = "pictures", .sections = {{.title = "one"}}};
  report.sections[0].blocks.emplace_back(Picture{flame, "a < b"});
  const std::string html = to_html(report, "f.json");
  CHECK(problems_of_page(html) == kNone);
  CHECK_THAT(html, Contains(flame + "</div>\n<figcaption>a &lt; b</figcaption>"));
}

TEST_CASE("an empty report is a valid page", "[report]") {
  CHECK(problems_of_page(to_html({.title = "nothing"}, "f.json")) == kNone);
  Report report{.title = "nothing", .sections = {{.title = "empty"}}};
  report.sections[0].blocks.emplace_back(Table{"empty", {"a"}, {}});
  CHECK(problems_of_page(to_html(report, "f.json")) == kNone);
}

TEST_CASE("a report leaves out columns without cells and the name of a file that is not there",
          "[report]") {
  Report report{.title = "t", .sections = {{.title = "s"}}};
  report.sections[0].blocks.emplace_back(
      Table{"kernels", {"kernel", "module", "us"}, {{"add", "", "1"}, {"mul", "", "2"}}});
  const std::string html = to_html(report, "");
  CHECK(problems_of_page(html) == kNone);
  CHECK_THAT(html, Contains(">us</th>") && !Contains(">module</th>") && !Contains("<footer>"));
}

TEST_CASE("hostile text stays text in a report", "[report]") {
  const std::string html = to_html(report_of(kHostile), kHostile);
  CHECK(problems_of_page(html) == kNone);
  CHECK_THAT(html, !Contains("<script src") && Contains("&lt;script src=&quot;http://x&quot;&gt;"));
}

TEST_CASE("a table with a row of another length is refused", "[report]") {
  Report report{.title = "t", .sections = {{.title = "s"}}};
  report.sections[0].blocks.emplace_back(Table{"times", {"a", "b"}, {{"1", "2"}, {"3"}}});
  CHECK_THAT(brrr::test::error_of([&] { to_html(report, "f.json"); }),
             Contains("[report] expected 2 cells in each row of the table \"times\", got 1"));
}

TEST_CASE("the checker of pages finds what is wrong", "[report]") {
  const std::string right = to_html(report_of("plain"), "plain.json");
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string page = right;
    const std::size_t at = page.find(from);
    REQUIRE(at != page.npos);
    page.replace(at, from.size(), to);
    const std::vector<std::string> problems = problems_of_page(page);
    return problems.empty() ? std::string("no problem") : problems.front();
  };
  CHECK_THAT(broken("</section>", ""), Contains("</main> closes <section>"));
  CHECK_THAT(broken("</html>", ""), Contains("<html> is not closed"));
  CHECK_THAT(broken("<p>plain", "<p>a & b"), Contains("a bare &"));
  CHECK_THAT(broken("<p>plain", "<p>a < b"), Contains("a bare <"));
  CHECK_THAT(broken("<p>plain", "<p>a > b"), Contains("a bare >"));
  CHECK_THAT(broken("<p>plain", "<p>\x01"), Contains("is not text"));
  CHECK_THAT(broken("<p>plain", "<p>\xff"), Contains("is not text"));
  CHECK_THAT(broken("<p>plain", "<p>\xc3("), Contains("is not UTF-8"));
  CHECK_THAT(broken("<p>plain", "<p class=a>"), Contains("without quotes"));
  CHECK_THAT(broken("<p>plain", "<p class=\"a\" class=\"b\">"), Contains("class is twice"));
  CHECK_THAT(broken("<p>plain", "<p onclick=\"x\">"), Contains("attribute onclick"));
  CHECK_THAT(broken("<p>plain", "<img src=\"a.png\"></img><p>"), Contains("attribute src"));
  CHECK_THAT(broken("<p>plain", "<p><a href=\"https://x\">x</a>"),
             Contains("a reference to https"));
  CHECK_THAT(broken("<p>plain", "<p><a href=\"#no\">x</a>"), Contains("no element has the id"));
  CHECK_THAT(broken("id=\"plot-2-title\"", "id=\"plot-1-title\""), Contains("is twice"));
  CHECK_THAT(broken("<desc id=\"plot-1-desc\">", "<text id=\"plot-1-desc\">"), Contains("closes"));
  CHECK_THAT(broken("role=\"img\"", "role=\"x\""), Contains("an svg needs role"));
  CHECK_THAT(broken("cx=\"", "cx=\"nan"), Contains("cx is \"nan"));
  CHECK_THAT(broken(":root {", "@import 'x'; :root {"), Contains("contains @import"));
  CHECK_THAT(broken("<h1>plain</h1>", ""), Contains("0 of <h1>"));
  CHECK_THAT(broken("<!DOCTYPE html>", ""), Contains("no doctype"));
}

// For pages that the program wrote: tests/cli/report.cmake names the file.
TEST_CASE("the page in BRRR_TEST_PAGE is valid", "[.page]") {
  const char* path = std::getenv("BRRR_TEST_PAGE");
  REQUIRE(path);
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  const std::string html{std::istreambuf_iterator<char>(in), {}};
  CHECK(html.size() > 1000);
  CHECK(problems_of_page(html) == kNone);
}
