// Plots: that each is a valid SVG whatever its numbers and names are, where values are drawn, and
// that labels do not overlap.
#include "brrr/measure/svg_plot.h"

#include <limits>
#include <regex>

#include "brrr/measure/markup.h"
#include "brrr/measure/svg_canvas.h"
#include "tests/harness/catch.h"
#include "tests/harness/html_checker.h"

using namespace brrr::measure;
using Catch::Contains;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");
const std::string kHostile = "</text><script>alert('x')</script> \"a\" & b\x01\xff";

template <class Plot>
std::string checked(const Plot& plot) {
  const std::string svg = to_svg(plot, "p");
  INFO(svg);
  CHECK(brrr::testing::problems_of_svg(svg) == std::vector<std::string>());
  CHECK(brrr::testing::problems_of_svg(with_style(svg)) == std::vector<std::string>());
  return svg;
}

LinePlot lines(std::vector<std::pair<double, double>> points, bool logarithmic) {
  return {.title = "time by size",
          .description = "A test.",
          .x = {"elements", logarithmic},
          .y = {"time, us", logarithmic},
          .series = {{"eager", std::move(points)}}};
}

struct Label {
  double x, y;
  std::string anchor, text;
};
std::vector<Label> labels_of(const std::string& svg) {
  static const std::regex label(
      R"re(<text x="([-0-9.]+)" y="([-0-9.]+)" text-anchor="(\w+)" class="\w*">([^<]*)</text>)re");
  std::vector<Label> labels;
  for (std::sregex_iterator at(svg.begin(), svg.end(), label), end; at != end; ++at)
    labels.push_back({std::stod((*at)[1]), std::stod((*at)[2]), (*at)[3], (*at)[4]});
  return labels;
}

// By the estimated widths of labels, less their slack.
void check_no_overlap(const std::string& svg) {
  const std::vector<Label> labels = labels_of(svg);
  CHECK(labels.size() > 1);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto left = [](const Label& l) {
      const double width = svg::text_width(l.text, 12);
      return l.x - (l.anchor == "end" ? width : l.anchor == "middle" ? width / 2 : 0);
    };
    const auto right = [&](const Label& l) { return left(l) + svg::text_width(l.text, 12); };
    INFO(labels[i].text);
    CHECK(left(labels[i]) >= 0);
    CHECK(right(labels[i]) <= svg::kWidth + 6);
    for (std::size_t j = 0; j < i; ++j) {
      INFO(labels[j].text);
      const bool apart = std::abs(labels[i].y - labels[j].y) >= 10 ||
                         left(labels[i]) >= right(labels[j]) || left(labels[j]) >= right(labels[i]);
      CHECK(apart);
    }
  }
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("text of markup cannot end an element or an attribute", "[report]") {
  CHECK(escaped("a < b && c > \"d\" 'e'") ==
        "a &lt; b &amp;&amp; c &gt; &quot;d&quot; &#39;e&#39;");
  CHECK(escaped("\u00e4\u2026\U0001F600\n\t") == "\u00e4\u2026\U0001F600\n\t");
  const std::string replaced = "\xEF\xBF\xBD";
  CHECK(escaped(std::string_view("\0", 1)) == replaced);
  CHECK(escaped("\x1b[0m") == replaced + "[0m");
  CHECK(escaped("\xc3") == replaced);                                // cut short
  CHECK(escaped("\xc0\xaf") == replaced + replaced);                 // a long form of '/'
  CHECK(escaped("\xed\xa0\x80") == replaced + replaced + replaced);  // a surrogate
  CHECK(escaped("\xc2\x85") == replaced + replaced);                 // a control
  CHECK(escaped("\xef\xbf\xbf").starts_with(replaced));              // no character
}

TEST_CASE("lines have titles, axes with units, a legend and markers", "[report]") {
  LinePlot plot = lines({{1, 10}, {10, 100}, {100, 1000}}, true);
  plot.series.push_back({"fused", {{1, 5}, {100, 50}}});
  const std::string svg = checked(plot);
  CHECK_THAT(svg, Contains("<title id=\"p-title\">time by size</title>") &&
                      Contains("<desc id=\"p-desc\">A test. Horizontal: elements. Vertical: time, "
                               "us. Lines: eager, fused.</desc>") &&
                      Contains(">elements</text>") && Contains(">time, us</text>") &&
                      Contains(">eager</text>") && Contains("line c1 d1"));
  CHECK(count(svg, "<circle ") == 3 + 1);  // of eager, and in the legend
  check_no_overlap(svg);
  // On logarithmic axes equal ratios are equal distances: the line is straight.
  std::smatch line;
  REQUIRE(std::regex_search(
      svg, line,
      std::regex(
          R"re(M([0-9.]+) ([0-9.]+)L([0-9.]+) ([0-9.]+)L([0-9.]+) ([0-9.]+)" class="line c0)re")));
  const auto at = [&](int i) { return std::stod(line[i]); };
  CHECK(at(3) - at(1) == Approx(at(5) - at(3)).margin(0.11));
  CHECK(at(2) - at(4) == Approx(at(4) - at(6)).margin(0.11));
  CHECK(at(2) > at(6));  // larger values are higher
}

TEST_CASE("a linear axis begins at zero, and steps hold until the next point", "[report]") {
  LinePlot plot = lines({{0, 4}, {50, 8}, {100, 8}}, false);
  plot.steps = true;
  const std::string svg = checked(plot);
  CHECK_THAT(svg, Contains(">0</text>") && Contains(">100</text>") && Contains(">8</text>"));
  CHECK(std::regex_search(svg, std::regex(R"re(d="M[0-9. ]+H[0-9.]+V[0-9.]+H)re")));
  check_no_overlap(svg);
}

TEST_CASE("points without a place on the axes are left out, and counted", "[report]") {
  CHECK_THAT(checked(lines({{1, 10}, {-1, 5}, {0, 5}, {2, kNan}, {3, kInf}, {4, 8}}, true)),
             Contains("4 points without a place on the axes: left out."));
  CHECK_THAT(checked(lines({{1, 10}, {-1, 5}, {2, -kInf}}, false)),
             Contains("1 point without a place on the axes: left out."));
  CHECK_THAT(checked(lines({{1, 10}, {2, 20}}, true)), !Contains("left out"));
}

TEST_CASE("plots of nothing, of one point and of extremes are valid", "[report]") {
  for (const bool logarithmic : {false, true}) {
    CHECK_THAT(checked(lines({}, logarithmic)), Contains("There are no points to show."));
    CHECK_THAT(checked(lines({{kNan, kNan}}, logarithmic)), Contains("no points to show"));
    const std::string one = checked(lines({{3, 7}}, logarithmic));
    CHECK(count(one, "<circle ") == 2);
    check_no_overlap(one);
    for (const double x : {0.0, 1e-300, 1e-99, 1.0, 1e99, 1e300, -5.0})
      checked(lines({{x, x}, {2 * x + 1, 3 * x + 1}}, logarithmic));
    checked(lines({{1e-90, 1}, {1e90, 2}}, logarithmic));
    checked(lines({{1e15, 1e15}, {1e15 + 1, 1e15 + 1}}, logarithmic));
    LinePlot none = lines({}, logarithmic);
    none.series.clear();
    checked(none);
  }
}

TEST_CASE("hostile names stay text", "[report]") {
  LinePlot plot = lines({{1, 10}, {2, 20}}, true);
  plot.title = plot.description = plot.x.title = plot.y.title = plot.series[0].name = kHostile;
  CHECK_THAT(checked(plot), !Contains("<script") && Contains("&lt;script&gt;"));
  BarPlot bars{.title = kHostile,
               .description = kHostile,
               .unit = kHostile,
               .measures = {kHostile, kHostile},
               .groups = {{kHostile, {1, 2}}, {std::string(4000, 'W'), {kNan, kInf}}}};
  CHECK_THAT(checked(bars), !Contains("<script"));
  RooflinePlot roofline{.title = kHostile,
                        .description = kHostile,
                        .bandwidths = {{kHostile, 1e10}},
                        .computes = {{kHostile, 1e12}},
                        .kernels = {{kHostile, 1e6, 1e6, 1e-3, 1}}};
  CHECK_THAT(checked(roofline), !Contains("<script"));
  CHECK_THAT(to_svg(plot, "\"><script>"), !Contains("<script"));
}

TEST_CASE("bars are as long as their values, and all are labelled", "[report]") {
  BarPlot plot{.title = "step time by mode",
               .description = "",
               .unit = "us",
               .measures = {"measured", "predicted"},
               .groups = {{"eager", {400, 200}}, {"graph", {100, 0}}, {"fused", {50, kNan}}}};
  const std::string svg = checked(plot);
  CHECK_THAT(svg, Contains(">400 µs</text>") && Contains(">50.0 µs</text>") &&
                      Contains(">0 µs</text>") && Contains(">-</text>"));
  check_no_overlap(svg);
  std::vector<double> widths;
  const std::regex bar(R"re(width="([0-9.]+)" height="13.0" class="bar)re");
  for (std::sregex_iterator at(svg.begin(), svg.end(), bar), end; at != end; ++at)
    widths.push_back(std::stod((*at)[1]));
  REQUIRE(widths.size() == 5);
  CHECK(widths[0] == Approx(2 * widths[1]).epsilon(0.01));
  CHECK(widths[0] == Approx(4 * widths[2]).epsilon(0.01));
  CHECK(widths[0] == Approx(8 * widths[4]).epsilon(0.01));
}

TEST_CASE("a bar is divided into its parts", "[report]") {
  const BarPlot plot{.title = "t",
                     .description = "",
                     .unit = "us",
                     .measures = {"measured", "predicted"},
                     .parts = {"overhead", "compute", "none"},
                     .groups = {{"eager", {100, 50}, {{0.25, 0.75, 0}, {1, 1, 0}}},
                                {"graph", {100, 10}, {{}, {0, 0, 0}}}}};
  const std::string svg = checked(plot);
  check_no_overlap(svg);
  std::vector<double> widths;
  const std::regex bar(R"re(width="([0-9.]+)" height="13.0" class="bar)re");
  for (std::sregex_iterator at(svg.begin(), svg.end(), bar), end; at != end; ++at)
    widths.push_back(std::stod((*at)[1]));
  REQUIRE(widths.size() == 5);  // two parts of each bar of eager, the undivided one of graph
  CHECK(widths[1] == Approx(3 * widths[0]).epsilon(0.02));
  CHECK(widths[2] == Approx(widths[3]).epsilon(0.02));
  CHECK(widths[2] == Approx(widths[0]).epsilon(0.02));
  CHECK(widths[4] == Approx(4 * widths[0]).epsilon(0.02));
  CHECK_THAT(svg, Contains(">overhead</text>") && Contains(">none</text>"));
}

TEST_CASE("bars of extremes, of zeros and of nothing are valid", "[report]") {
  BarPlot plot{.title = "t", .description = "", .unit = "", .measures = {"here"}};
  CHECK_THAT(checked(plot), Contains("There are no values to show."));
  for (const bool logarithmic : {false, true}) {
    plot.logarithmic = logarithmic;
    for (const std::vector<double>& values : std::vector<std::vector<double>>{
             {}, {0}, {kNan}, {-1}, {kInf}, {1e-300, 1e300}, {1e-9, 1e9}, {0, 5}, {5}, {1e99}}) {
      plot.groups = {{"only", values}};
      plot.measures.assign(values.size(), "m");
      checked(plot);
    }
  }
  plot.groups = {{"only", {-3, kInf}}};
  plot.measures = {"a", "b"};
  CHECK_THAT(checked(plot), Contains("-3.00 (no place on the axis)") && Contains("inf (no place"));
}

TEST_CASE("a roofline has its kernels under its ceilings", "[report]") {
  RooflinePlot plot{.title = "kernels",
                    .description = "",
                    .bandwidths = {{"copy", 1e11}},
                    .computes = {{"products in bf16", 1e14}, {"plain units", 1e12}},
                    .kernels = {}};
  // Each on its ceiling, so that its point is on the line.
  for (const double intensity : {0.1, 1.0, 10.0})
    plot.kernels.push_back(
        {"kernel " + std::to_string(intensity), intensity * 1e9, 1e9, 0.01, 0.2});
  const std::string svg = checked(plot);
  CHECK_THAT(svg, Contains("copy, 100 GB/s") && Contains("products in bf16, 100 TFLOP/s") &&
                      Contains("plain units, 1 TFLOP/s") && Contains(">FLOPs a byte</text>") &&
                      Contains(" 20.0 %</text>"));
  CHECK(count(svg, "class=\"point c3\"") == 3);
  check_no_overlap(svg);
  static const std::regex circle(R"re(<circle cx="([0-9.]+)" cy="([0-9.]+)")re");
  static const std::regex slope(
      R"re(<line x1="([0-9.]+)" y1="([0-9.]+)" x2="([0-9.]+)" y2="([0-9.]+)" class="line c0 d0")re");
  std::smatch line;
  REQUIRE(std::regex_search(svg, line, slope));
  const auto at = [&](int i) { return std::stod(line[i]); };
  for (std::sregex_iterator point(svg.begin(), svg.end(), circle), end; point != end; ++point) {
    const double x = std::stod((*point)[1]), y = std::stod((*point)[2]);
    CHECK(y == Approx(at(2) + (x - at(1)) * (at(4) - at(2)) / (at(3) - at(1))).margin(0.3));
  }
}

TEST_CASE("a roofline numbers points in one place without overlaps", "[report]") {
  RooflinePlot plot{.title = "kernels",
                    .description = "",
                    .bandwidths = {{"copy", 1e11}},
                    .computes = {{"plain", 1e12}}};
  for (int i = 0; i < 30; ++i) {
    plot.kernels.push_back(
        {"a kernel of a name that is too long for a line of the legend, as fused ones are", 1e9,
         1e9, 0.01 * (1 + 1e-6 * i), 1.0 / 30});
  }
  const std::string svg = checked(plot);
  check_no_overlap(svg);
  CHECK(count(svg, "\u2026</text>") == 8);
  CHECK(count(svg, "class=\"number\"") == 16);  // in the plot and in the legend
}

TEST_CASE("rooflines of nothing and of hostile numbers are valid", "[report]") {
  RooflinePlot plot{.title = "kernels", .description = ""};
  CHECK_THAT(checked(plot), Contains("There are no kernels and ceilings to show."));
  plot.kernels = {{"copy", 0, 1e6, 1e-3, 1}};
  checked(plot);
  plot.bandwidths = {{"bandwidth", 1e11}};
  plot.computes = {{"compute", 1e12}};
  CHECK_THAT(checked(plot), Contains("1 without FLOPs or bytes: not shown."));
  plot.kernels = {{"a", kNan, 1, 1, 1},   {"b", 1, 0, 1, 1},         {"c", 1, 1, 0, 1},
                  {"d", -1, -1, 1, 1},    {"e", kInf, 1, 1, 1},      {"f", 1e9, 1e9, 1, kNan},
                  {"g", 1e9, 1e9, 1, -4}, {"h", 1e300, 1e-300, 1, 1}};
  checked(plot);
  for (const double rate : {0.0, -1.0, kNan, kInf, 1e-300}) {
    plot.bandwidths = {{"bandwidth", rate}};
    checked(plot);
    plot.computes = {{"compute", rate}};
    checked(plot);
  }
}

TEST_CASE("ticks are round numbers with units", "[report]") {
  CHECK(svg::tick_text(0) == "0");
  CHECK(svg::tick_text(1500) == "1.5k");
  CHECK(svg::tick_text(999.9) == "1k");
  CHECK(svg::tick_text(2e13, "FLOP/s") == "20 TFLOP/s");
  CHECK(svg::tick_text(0.25, "B/s") == "0.25 B/s");
  CHECK(svg::Scale(0, 97, false).ticks() == std::vector<double>{0, 20, 40, 60, 80, 100});
  CHECK(svg::Scale(2, 1000, true).ticks() == std::vector<double>{10, 100, 1000});
  CHECK(svg::Scale(1, 40, true).ticks().size() == 5);
  CHECK(svg::Scale(1e-12, 1e12, true).ticks().size() <= 8);
}

TEST_CASE("long text is wrapped and cut between characters", "[report]") {
  for (const std::string& line : svg::wrapped("one two three four five six seven", 80))
    CHECK(svg::text_width(line) <= 80);
  CHECK(svg::wrapped("", 80).empty());
  CHECK(svg::shortened("short", 200) == "short");
  std::string umlauts;
  for (int i = 0; i < 60; ++i) umlauts += "\u00fc";
  const std::string cut = svg::shortened(umlauts, 90);
  CHECK(cut.ends_with("\u2026"));
  CHECK(escaped(cut) == cut);  // no character was cut in two
  CHECK(svg::text_width(cut) <= 100);
}
