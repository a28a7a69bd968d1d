// Bars in groups: a name, and below it a bar for each measure with its value.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "brrr/measure/bench.h"
#include "brrr/measure/svg_canvas.h"
#include "brrr/measure/svg_plot.h"
#include "brrr/measure/text.h"

namespace brrr::measure {
namespace {

using svg::Canvas;
using svg::Scale;

constexpr double kBar = 15, kGap = 3;

bool is_shown(const BarPlot& plot, double value) {
  return svg::can_show(value, plot.logarithmic) && value >= 0;
}

std::string value_text(const BarPlot& plot, double value) {
  if (!is_shown(plot, value))
    return std::isnan(value) ? "-" : number_text(value) + " (no place on the axis)";
  if (plot.unit == "us") return value > 0 ? time_text(value * 1e-6) : "0 µs";
  return number_text(value) + (plot.unit.empty() ? "" : " " + plot.unit);
}

std::string bar_class(std::size_t measure) {
  return fmt::format("bar c{}{}", measure % 6, measure > 0 ? " hollow" : "");
}

// From zero, or from below the least value, to the largest one; nothing if there is none.
std::optional<Scale> scale_of(const BarPlot& plot) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const BarGroup& group : plot.groups) {
    for (const double value : group.values) {
      if (!is_shown(plot, value)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  if (std::isinf(least)) return std::nullopt;
  return Scale(plot.logarithmic ? least : 0, most, plot.logarithmic);
}

// A part of a bar, or its sample in the legend; of measures after the first hollow.
std::string part_class(const BarPlot& plot, std::size_t part, std::size_t measure) {
  return fmt::format("bar c{}{}", (part < plot.colors.size() ? plot.colors[part] : part) % 6,
                     measure > 0 ? " hollow" : "");
}

void draw_bar(Canvas& canvas, const BarPlot& plot, const BarGroup& group, std::size_t measure,
              double left, double width) {
  const double top = canvas.y() + 1, height = kBar - 2;
  if (measure >= group.shares.size() || group.shares[measure].empty())
    return canvas.rect(left, top, std::max(width, 1.0), height, bar_class(measure));
  double sum = 0, begin = left;
  for (const double share : group.shares[measure]) sum += std::max(share, 0.0);
  for (std::size_t part = 0; part < group.shares[measure].size(); ++part) {
    const double part_width =
        sum > 0 ? width * std::max(group.shares[measure][part], 0.0) / sum : 0;
    if (part_width > 0)
      canvas.rect(begin, top, part_width, height, part_class(plot, part, measure));
    begin += part_width;
  }
}

void draw_values(Canvas& canvas, const BarPlot& plot, const BarGroup& group, const Scale& scale) {
  for (std::size_t i = 0; i < group.values.size(); ++i) {
    const double value = group.values[i], top = canvas.y(), left = svg::kMargin;
    double end = left;
    if (is_shown(plot, value)) {
      end = std::max(scale.at(value), left);
      if (plot.logarithmic) {
        canvas.line(left, top + kBar / 2, end, top + kBar / 2, "grid");
        canvas.marker(end, top + kBar / 2, i);
      } else {
        draw_bar(canvas, plot, group, i, left, end - left);
      }
    }
    canvas.text(end + 7, top + kBar / 2 + 4.5, value_text(plot, value));
    canvas.move_down(kBar + kGap);
  }
}

}  // namespace

std::string to_svg(const BarPlot& plot, std::string_view id) {
  std::vector<std::string> names;
  double widest = 0;
  for (const BarGroup& group : plot.groups) {
    names.push_back(group.name);
    for (const double value : group.values)
      widest = std::max(widest, svg::text_width(value_text(plot, value)));
  }
  Canvas canvas(id, plot.title,
                fmt::format("{}{}{} of {}{}{}.", plot.description,
                            plot.description.empty() ? "" : " ", fmt::join(plot.measures, ", "),
                            fmt::join(names, ", "), plot.unit.empty() ? "" : ", in ", plot.unit));
  std::optional<Scale> scale = scale_of(plot);
  if (plot.measures.size() > 1) {
    canvas.legend(plot.measures, [&](std::size_t i, double at, double middle) {
      if (plot.logarithmic) return canvas.marker(at + 11, middle, i);
      constexpr const char* kOfAllParts[] = {"bar c5", "bar c5 hollow"};
      canvas.rect(at, middle - 6, 22, 12,
                  plot.parts.empty() ? bar_class(i) : kOfAllParts[i > 0 ? 1 : 0]);
    });
  }
  canvas.legend(plot.parts, [&](std::size_t i, double at, double middle) {
    canvas.rect(at, middle - 6, 22, 12, part_class(plot, i, 0));
  });
  if (plot.groups.empty()) canvas.line_of_text("There are no values to show.", "faint");
  if (scale)
    scale->place(svg::kMargin + (plot.logarithmic ? 12 : 0),
                 svg::kWidth - svg::kMargin - 7 - widest);
  const Scale any(0, 1, false);  // where no value has a place
  for (const BarGroup& group : plot.groups) {
    for (const std::string& each : svg::wrapped(group.name, svg::kWidth - 2 * svg::kMargin))
      canvas.line_of_text(each);
    draw_values(canvas, plot, group, scale ? *scale : any);
    canvas.move_down(6);
  }
  if (scale && plot.logarithmic)
    canvas.line_of_text("Logarithmic: a distance is a ratio.", "faint");
  return canvas.finish();
}

}  // namespace brrr::measure
