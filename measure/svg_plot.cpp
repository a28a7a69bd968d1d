// Lines over two axes, and the CSS of all plots.
#include "brrr/measure/svg_plot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "brrr/measure/svg_canvas.h"

namespace brrr::measure {
namespace {

using svg::Canvas;
using svg::Scale;

using Points = std::vector<std::pair<double, double>>;

bool has_markers(const Points& points) {
  constexpr std::size_t kMost = 40;
  return points.size() <= kMost;
}

Points shown(const LinePlot& plot, const Points& points) {
  Points kept;
  for (const auto& [x, y] : points) {
    if (svg::can_show(x, plot.x.logarithmic) && svg::can_show(y, plot.y.logarithmic))
      kept.emplace_back(x, y);
  }
  return kept;
}

// The range of one coordinate of all points. A linear axis of values of one sign begins at zero.
std::optional<Scale> scale_of(const std::vector<Points>& series, double Points::value_type::*which,
                              bool logarithmic, bool from_zero) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const Points& points : series) {
    for (const auto& point : points) {
      least = std::min(least, point.*which);
      most = std::max(most, point.*which);
    }
  }
  if (least > most) return std::nullopt;
  if (from_zero && !logarithmic) {
    least = std::min(least, 0.0);
    most = std::max(most, 0.0);
  }
  return Scale(least, most, logarithmic);
}

std::string path_of(const Points& points, const Scale& x, const Scale& y, bool steps) {
  std::string path;
  for (const auto& [at, value] : points) {
    if (path.empty())
      path = fmt::format("M{:.1f} {:.1f}", x.at(at), y.at(value));
    else if (steps)
      path += fmt::format("H{:.1f}V{:.1f}", x.at(at), y.at(value));
    else
      path += fmt::format("L{:.1f} {:.1f}", x.at(at), y.at(value));
  }
  return path;
}

void draw_series(Canvas& canvas, const Points& points, const Scale& x, const Scale& y,
                 const LinePlot& plot, std::size_t index) {
  if (points.size() > 1)
    canvas.path(path_of(points, x, y, plot.steps), fmt::format("line c{0} d{0}", index % 6));
  if (!has_markers(points)) return;
  for (const auto& [at, value] : points) canvas.marker(x.at(at), y.at(value), index);
}

}  // namespace

std::string to_svg(const LinePlot& plot, std::string_view id) {
  std::vector<Points> series;
  std::vector<std::string> names;
  std::size_t left_out = 0;
  for (const Series& each : plot.series) {
    series.push_back(shown(plot, each.points));
    names.push_back(each.name);
    left_out += each.points.size() - series.back().size();
  }
  Canvas canvas(id, plot.title,
                fmt::format("{}{}Horizontal: {}. Vertical: {}. Lines: {}.", plot.description,
                            plot.description.empty() ? "" : " ", plot.x.title, plot.y.title,
                            fmt::join(names, ", ")));
  std::optional<Scale> x = scale_of(series, &Points::value_type::first, plot.x.logarithmic, false),
                       y = scale_of(series, &Points::value_type::second, plot.y.logarithmic, true);
  if (x && y) {
    canvas.legend(names, [&](std::size_t i, double at, double middle) {
      canvas.path(fmt::format("M{:.1f} {:.1f}h22", at, middle),
                  fmt::format("line c{0} d{0}", i % 6));
      if (has_markers(series[i])) canvas.marker(at + 11, middle, i);
    });
    svg::draw_frame(canvas, *x, *y, plot.x.title, plot.y.title, 230);
    for (std::size_t i = 0; i < series.size(); ++i) draw_series(canvas, series[i], *x, *y, plot, i);
  } else {
    canvas.line_of_text("There are no points to show.", "faint");
  }
  if (left_out > 0) {
    canvas.line_of_text(fmt::format("{} point{} without a place on the axes: left out.", left_out,
                                    left_out == 1 ? "" : "s"),
                        "faint");
  }
  return canvas.finish();
}

// Colours by Okabe and Ito, darker on white and lighter on black where contrast asks for it.
std::string plot_style() {
  constexpr const char* kDashes[] = {"none", "7 3", "2 3", "9 3 2 3", "5 5", "1 4"};
  std::string css = R"(
svg.plot { --paper: #ffffff; --ink: #1b1f24; --faint: #57606a; --grid: #e3e6ea; --c0: #0072b2;
  --c1: #c65400; --c2: #00805c; --c3: #a3458a; --c4: #8a6d00; --c5: #3f4a56; --c6: #7d5236;
  display: block; width: 100%; max-width: 32rem; height: auto; font-size: 13px;
  font-family: system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
@media (prefers-color-scheme: dark) {
  svg.plot { --paper: #14181d; --ink: #e6e9ed; --faint: #a3adb8; --grid: #2b323a; --c0: #56b4e9;
    --c1: #f0a13a; --c2: #2fc39a; --c3: #e58fc6; --c4: #f0e442; --c5: #c3ccd6;
    --c6: #c79a78; }
}
svg.plot .paper { fill: var(--paper); }
svg.plot text { fill: var(--ink); }
svg.plot .heading { font-size: 15px; font-weight: 600; }
svg.plot .faint { fill: var(--faint); }
svg.plot .small { font-size: 12px; }
svg.plot .grid { stroke: var(--grid); stroke-width: 1; }
svg.plot .axis { stroke: var(--faint); stroke-width: 1; }
svg.plot .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg.plot .mark { stroke: var(--paper); stroke-width: 1; }
svg.plot .bar { stroke-width: 1.5; }
svg.plot .point { fill-opacity: 0.35; stroke-width: 1.5; }
svg.plot .leader { stroke: var(--faint); stroke-width: 0.8; }
svg.plot .number { font-size: 12px; font-weight: 600; paint-order: stroke; stroke: var(--paper);
  stroke-width: 3px; }
)";
  for (std::size_t i = 0; i < std::size(kDashes); ++i) {
    css += fmt::format(
        "svg.plot .line.c{0}, svg.plot .bar.c{0}, svg.plot .point.c{0} {{ stroke: var(--c{0}); }}\n"
        "svg.plot .mark.c{0}, svg.plot .bar.c{0}, svg.plot .point.c{0} {{ fill: var(--c{0}); }}\n"
        "svg.plot .d{0} {{ stroke-dasharray: {1}; }}\n",
        i, kDashes[i]);
  }
  for (std::size_t i = 0; i < kLaneColors; ++i)
    css += fmt::format("svg.plot .span.c{0} {{ fill: var(--c{0}); }}\n", i);
  css += "svg.plot .band { fill: var(--grid); }\n";
  // Bars after the first of a group are hollow.
  return css + "svg.plot .bar.hollow { fill: var(--paper); }\n";
}

std::string with_style(const std::string& svg) {
  const std::size_t end = svg.find('>') + 1;
  return svg.substr(0, end) + "\n<style>" + plot_style() + "</style>" + svg.substr(end);
}

}  // namespace brrr::measure
