// Spans of time in lanes: a name, and below it a band with the spans.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "brrr/measure/svg_canvas.h"
#include "brrr/measure/svg_plot.h"

namespace brrr::measure {
namespace {

using svg::Canvas;
using svg::Scale;

constexpr double kBand = 18;
// In units of the view box: narrower spans are drawn this wide, and narrower gaps are not drawn.
constexpr double kNarrowestSpan = 0.5;

bool is_shown(const LanePlot::Span& span) {
  return svg::can_show(span.start, false) && svg::can_show(span.end, false) && span.start >= 0 &&
         span.end >= span.start;
}

// The rectangles of one kind of span, as one path.
std::string path_of(const LanePlot::Lane& lane, std::size_t kind, const Scale& x, double top) {
  std::string path;
  double left = 0, right = -1;
  const auto draw = [&] {
    if (right > left)
      path += fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h-{:.1f}z", left, top, right - left, kBand,
                          right - left);
  };
  for (const LanePlot::Span& span : lane.spans) {
    if (span.kind != kind || !is_shown(span)) continue;
    const double from = x.at(span.start), to = std::max(x.at(span.end), from + kNarrowestSpan);
    if (from - right >= kNarrowestSpan) {
      draw();
      left = from;
    }
    right = std::max(right, to);
  }
  draw();
  return path;
}

std::string class_of(const LanePlot& plot, std::size_t kind) {
  return fmt::format("span c{}",
                     (kind < plot.colors.size() ? plot.colors[kind] : kind) % kLaneColors);
}

double end_of(const LanePlot& plot) {
  double end = svg::can_show(plot.end, false) ? plot.end : 0;
  for (const LanePlot::Lane& lane : plot.lanes) {
    for (const LanePlot::Span& span : lane.spans)
      if (is_shown(span)) end = std::max(end, span.end);
  }
  return end;
}

void draw_axis(Canvas& canvas, const LanePlot& plot, const Scale& x, double top) {
  for (const double tick : x.ticks()) {
    canvas.line(x.at(tick), top, x.at(tick), canvas.y() + 4, "axis");
    canvas.text(x.at(tick), canvas.y() + 18, svg::tick_text(tick), svg::Anchor::middle);
  }
  canvas.move_down(24);
  canvas.text(svg::kWidth / 2, canvas.y() + svg::kTextSize, plot.x, svg::Anchor::middle, "faint");
  canvas.move_down(22);
}

}  // namespace

std::string to_svg(const LanePlot& plot, std::string_view id) {
  std::vector<std::string> names;
  for (const LanePlot::Lane& lane : plot.lanes) names.push_back(lane.name);
  Canvas canvas(id, plot.title,
                fmt::format("{}{}Horizontal: {}. Lanes: {}. Kinds of span: {}.", plot.description,
                            plot.description.empty() ? "" : " ", plot.x, fmt::join(names, ", "),
                            fmt::join(plot.kinds, ", ")));
  const double end = end_of(plot);
  if (plot.lanes.empty() || !(end > 0)) {
    canvas.line_of_text("There are no spans to show.", "faint");
    return canvas.finish();
  }
  canvas.legend(plot.kinds, [&](std::size_t i, double at, double middle) {
    canvas.rect(at, middle - 6, 22, 12, class_of(plot, i));
  });
  Scale x(0, end, false);
  x.place(svg::kMargin + 4, svg::kWidth - svg::kMargin - 14);
  for (const LanePlot::Lane& lane : plot.lanes) {
    canvas.line_of_text(lane.name);
    canvas.rect(x.at(0), canvas.y(), x.at(end) - x.at(0), kBand, "band");
    for (std::size_t kind = 0; kind < plot.kinds.size(); ++kind) {
      const std::string path = path_of(lane, kind, x, canvas.y());
      if (!path.empty()) canvas.path(path, class_of(plot, kind));
    }
    canvas.move_down(kBand + 6);
  }
  draw_axis(canvas, plot, x, canvas.y());
  return canvas.finish();
}

}  // namespace brrr::measure
