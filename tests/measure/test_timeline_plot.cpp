// A recorded step as plots: which step, which spans, in which lanes; and that each drawing is
// valid.
#include "brrr/measure/timeline_plot.h"

#include <limits>
#include <regex>

#include "tests/harness/catch.h"
#include "tests/harness/html_checker.h"

using namespace brrr::measure;
using Catch::Contains;
using Spans = std::vector<std::vector<double>>;

namespace {

Timeline timeline_of_steps(const std::vector<std::pair<std::int64_t, std::int64_t>>& steps) {
  Timeline timeline;
  for (const auto& [start, end] : steps)
    timeline.steps.push_back({"step", HostWork::step, 0, start, end});
  return timeline;
}

Spans spans_of(const LanePlot& plot, std::size_t lane) {
  Spans spans;
  for (const LanePlot::Span& span : plot.lanes.at(lane).spans)
    spans.push_back({span.start, span.end, static_cast<double>(span.kind)});
  return spans;
}

std::string checked(const LanePlot& plot) {
  const std::string svg = to_svg(plot, "p");
  INFO(svg);
  CHECK(brrr::testing::problems_of_svg(svg) == std::vector<std::string>());
  return svg;
}

}  // namespace

TEST_CASE("lanes are those of the step of median length", "[report][timeline]") {
  Timeline timeline = timeline_of_steps({{0, 9000}, {10000, 15000}, {20000, 26000}});
  timeline.host = {{"early", HostWork::op, 0, 12000, 13000},
                   {"step", HostWork::step, 0, 20000, 26000},
                   {"add", HostWork::op, 0, 21000, 23000},
                   {"replay", HostWork::replay, 0, 20500, 20800},
                   {"empty", HostWork::allocation, 0, 21200, 21500},
                   {"cuLaunchKernel", HostWork::launch, 0, 22000, 22500},
                   {"wait", HostWork::wait, 1, 24000, 27000}};
  timeline.spans = {{"before", DeviceWork::kernel, 0, 18000, 20500},
                    {"add", DeviceWork::kernel, 0, 22500, 25000},
                    {"copy", DeviceWork::copy, 2, 23000, 24000}};
  const LanePlot plot = lane_plot(timeline, "t");
  CHECK(plot.end == 6);
  CHECK(plot.kinds == std::vector<std::string>{"replays", "calls", "launches", "allocation",
                                               "waiting", "kernels", "copies, fills"});
  REQUIRE(plot.lanes.size() == 4);
  CHECK(plot.lanes[0].name == "host");
  CHECK(spans_of(plot, 0) == Spans{{0.5, 0.8, 0}, {1, 3, 1}, {1.2, 1.5, 3}, {2, 2.5, 2}});
  CHECK(plot.lanes[1].name == "host, thread 1");
  CHECK(spans_of(plot, 1) == Spans{{4, 6, 4}});  // it ends with the step
  CHECK(plot.lanes[2].name == "device");
  CHECK(spans_of(plot, 2) == Spans{{0, 0.5, 5}, {2.5, 5, 5}});
  CHECK(plot.x == "µs since the step began");
  CHECK(plot.lanes[3].name == "device, stream 2");
  CHECK(spans_of(plot, 3) == Spans{{3, 4, 6}});
  checked(plot);
}

TEST_CASE("a legend has the kinds of spans that there are", "[report][timeline]") {
  Timeline timeline = timeline_of_steps({{0, 4000}});
  timeline.spans = {{"k", DeviceWork::kernel, 0, 1000, 2000}};
  const LanePlot plot = lane_plot(timeline, "t");
  CHECK(plot.kinds == std::vector<std::string>{"kernels"});
  CHECK(spans_of(plot, 0) == Spans{{1, 2, 0}});
  CHECK_THAT(checked(plot),
             Contains(">kernels</text>") && !Contains(">calls</text>") && Contains("span c2"));
}

TEST_CASE("lanes that are side by side have one scale and one color for a kind",
          "[report][timeline]") {
  Timeline timeline = timeline_of_steps({{0, 4000}});
  timeline.host = {{"add", HostWork::op, 0, 1000, 2000}};
  timeline.memory = {{3000, 1 << 20}};
  const LanePlot plot = lane_plot(timeline, "t", 2000);
  CHECK(step_us(timeline) == 4);
  CHECK(plot.end == 2);
  CHECK(plot.x == "ms since the step began");
  CHECK(plot.lanes.at(0).spans.at(0).start == Approx(0.001));
  const auto memory = memory_plot(timeline, "m", 2000);
  REQUIRE(memory);
  CHECK(memory->x.title == plot.x);
  CHECK(memory->series.at(0).points.at(0).first == Approx(0.003));
  Timeline replayed = timeline;
  replayed.host.push_back({"replay", HostWork::replay, 0, 500, 3000});
  for (const Timeline& each : {timeline, replayed})
    CHECK_THAT(checked(lane_plot(each, "t", 2000)), Contains("span c5"));
  CHECK(lane_plot({}, "t", 2000).lanes.empty());
}

TEST_CASE("spans are as long as their times, and close ones are joined", "[report][timeline]") {
  LanePlot plot{.title = "t", .description = "", .x = "us", .end = 100, .kinds = {"a", "b"}};
  plot.lanes = {{"one", {{0, 40, 0}, {60, 80, 1}}}, {"two", {}}};
  for (int i = 0; i < 5000; ++i)  // 5000 spans in a fifth of the axis
    plot.lanes[1].spans.push_back({20 + i * 0.004, 20 + i * 0.004 + 0.002, 0});
  const std::string svg = checked(plot);
  static const std::regex box(
      R"re(d="M([0-9.]+) [0-9.]+h([0-9.]+)v18.0h-[0-9.]+z" class="span c(\d))re");
  std::vector<double> widths;
  for (std::sregex_iterator at(svg.begin(), svg.end(), box), end; at != end; ++at)
    widths.push_back(std::stod((*at)[2]));
  REQUIRE(widths.size() == 3);
  CHECK(widths[0] == Approx(2 * widths[1]).epsilon(0.01));
  CHECK(widths[2] == Approx(widths[1]).epsilon(0.02));
  CHECK(svg.size() < 5000);
}

TEST_CASE("lanes of nothing and of hostile names and numbers are valid", "[report][timeline]") {
  CHECK_THAT(checked(lane_plot({}, "t")), Contains("There are no spans to show."));
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::string hostile = "</text><script>\x01\xff & \"";
  LanePlot plot{.title = hostile, .description = hostile, .x = hostile, .kinds = {hostile}};
  plot.lanes = {{hostile, {{0, 0, 0}, {1, kInf, 0}, {std::nan(""), 1, 0}, {-4, 1, 0}, {5, 2, 0}}}};
  CHECK_THAT(checked(plot), Contains("There are no spans to show."));
  plot.lanes[0].spans.push_back({1, 2, 0});
  CHECK_THAT(checked(plot), !Contains("<script"));
  plot.end = kInf;
  checked(plot);
}

TEST_CASE("measured memory is that of the step's ops", "[report][timeline]") {
  Timeline timeline = timeline_of_steps({{1000, 5000}});
  CHECK_FALSE(memory_plot(timeline, "m"));
  timeline.memory = {{500, 7 << 20}, {2000, 1 << 20}, {3000, 3 << 20}, {6000, 9 << 20}};
  const auto plot = memory_plot(timeline, "m");
  REQUIRE(plot);
  CHECK(plot->series.at(0).points == std::vector<std::pair<double, double>>{{1, 1}, {2, 3}});
  CHECK(plot->y.title == "MiB of live tensors");
  CHECK_FALSE(memory_plot({}, "m"));
}
