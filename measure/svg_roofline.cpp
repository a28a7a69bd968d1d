// Rooflines: kernels as points under the ceilings of bandwidth and compute.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "brrr/measure/bench.h"
#include "brrr/measure/svg_canvas.h"
#include "brrr/measure/svg_plot.h"

namespace brrr::measure {
namespace {

using svg::Canvas;
using svg::Scale;

constexpr std::size_t kNumbered = 8;  // kernels with a number and a name

// A kernel with a place in the plot.
struct Point {
  const KernelPoint* kernel;
  double intensity, rate;
};

std::vector<Point> points_of(const RooflinePlot& plot) {
  std::vector<Point> points;
  for (const KernelPoint& kernel : plot.kernels) {
    const Point point{&kernel, kernel.flops / kernel.bytes, kernel.flops / kernel.seconds};
    if (kernel.bytes > 0 && kernel.seconds > 0 && svg::can_show(point.intensity, true) &&
        svg::can_show(point.rate, true))
      points.push_back(point);
  }
  return points;
}

struct Range {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  void include(double value) {
    if (!svg::can_show(value, true)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

// Both axes: all points, and the ridges, where a bandwidth meets a rate of compute.
struct Axes {
  Range x, y;
};
Axes axes_of(const RooflinePlot& plot, const std::vector<Point>& points) {
  Axes axes;
  for (const Point& point : points) {
    axes.x.include(point.intensity);
    axes.y.include(point.rate);
  }
  for (const RooflinePlot::Ceiling& compute : plot.computes) {
    axes.y.include(compute.rate);
    for (const RooflinePlot::Ceiling& bandwidth : plot.bandwidths)
      axes.x.include(compute.rate / bandwidth.rate);
  }
  for (const RooflinePlot::Ceiling& bandwidth : plot.bandwidths)
    if (plot.computes.empty()) axes.y.include(bandwidth.rate * axes.x.most);
  axes.x = {axes.x.least / 3, axes.x.most * 3};
  axes.y = {axes.y.least / 3, axes.y.most * 2};
  return axes;
}

double highest(const std::vector<RooflinePlot::Ceiling>& ceilings) {
  double rate = 0;
  for (const RooflinePlot::Ceiling& each : ceilings) rate = std::max(rate, each.rate);
  return rate;
}

// The ceilings of bandwidth have its color in other plots, those of compute theirs.
std::string class_of_ceiling(const RooflinePlot& plot, std::size_t index) {
  return fmt::format("line c{} d{}", index < plot.bandwidths.size() ? 0 : 2, index % 6);
}

void draw_ceilings(Canvas& canvas, const RooflinePlot& plot, const Scale& x, const Scale& y) {
  std::size_t index = 0;
  const auto draw = [&](double x1, double y1, double x2, double y2) {
    canvas.line(x.at(x1), y.at(y1), x.at(x2), y.at(y2), class_of_ceiling(plot, index));
  };
  const double top = plot.computes.empty() ? y.most() : highest(plot.computes);
  for (const RooflinePlot::Ceiling& each : plot.bandwidths) {
    const double from = std::max(x.least(), y.least() / each.rate),
                 to = std::min(x.most(), top / each.rate);
    if (from < to) draw(from, from * each.rate, to, to * each.rate);
    ++index;
  }
  const double fastest = highest(plot.bandwidths);
  for (const RooflinePlot::Ceiling& each : plot.computes) {
    draw(fastest > 0 ? std::max(x.least(), each.rate / fastest) : x.least(), each.rate, x.most(),
         each.rate);
    ++index;
  }
}

struct Box {
  double left, top, right, bottom;

  bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
  bool is_in(const svg::Frame& frame) const {
    return left >= frame.left && right <= frame.right && top >= frame.top && bottom <= frame.bottom;
  }
};

// Places numbers beside points: each as near to its point as possible without covering another
// number or another point's centre.
class Numbers {
 public:
  Numbers(Canvas& canvas, const svg::Frame& frame) : canvas_(canvas), frame_(frame) {}

  void keep_free(double x, double y) { taken_.push_back({x - 3, y - 3, x + 3, y + 3}); }

  void place(double x, double y, double radius, const std::string& text) {
    constexpr std::array<std::pair<int, int>, 8> kDirections = {
        {{1, -1}, {1, 0}, {-1, -1}, {0, -1}, {-1, 0}, {1, 1}, {0, 1}, {-1, 1}}};
    const double half = svg::text_width(text, 12) / 2 + 1;
    for (int ring = 0; ring < 6; ++ring) {
      for (const auto& [right, down] : kDirections) {
        const double away = radius + 9 + 14 * ring;
        const double length = right != 0 && down != 0 ? away * 0.75 : away;
        const double at = x + right * length, middle = y + down * length;
        const Box box{at - half, middle - 7, at + half, middle + 7};
        const bool free =
            std::ranges::none_of(taken_, [&](const Box& other) { return box.overlaps(other); });
        if (!free || !box.is_in(frame_)) continue;
        taken_.push_back(box);
        if (ring > 0) canvas_.line(x, y, at - right * half, middle - down * 6, "leader");
        canvas_.text(at, middle + 4.5, text, svg::Anchor::middle, "number");
        return;
      }
    }
  }

 private:
  Canvas& canvas_;
  svg::Frame frame_;
  std::vector<Box> taken_;
};

void draw_kernels(Canvas& canvas, const std::vector<Point>& points, const svg::Frame& frame,
                  const Scale& x, const Scale& y) {
  Numbers numbers(canvas, frame);
  const auto radius = [](const Point& p) {
    const double share = p.kernel->share;
    return 3 + (share > 0 ? 15 * std::sqrt(std::min(share, 1.0)) : 0);
  };
  for (const Point& p : points) {
    canvas.circle(x.at(p.intensity), y.at(p.rate), radius(p), "point c3");
    numbers.keep_free(x.at(p.intensity), y.at(p.rate));
  }
  for (std::size_t i = 0; i < std::min(points.size(), kNumbered); ++i) {
    const Point& p = points[i];
    numbers.place(x.at(p.intensity), y.at(p.rate), radius(p), std::to_string(i + 1));
  }
  for (std::size_t i = 0; i < std::min(points.size(), kNumbered); ++i) {
    const KernelPoint& kernel = *points[i].kernel;
    const std::string share = fmt::format(" {:.1f} %", 100 * kernel.share);
    canvas.text(svg::kMargin + 18, canvas.y() + svg::kTextSize, std::to_string(i + 1),
                svg::Anchor::end, "number");
    canvas.text(svg::kWidth - svg::kMargin, canvas.y() + svg::kTextSize, share, svg::Anchor::end);
    canvas.line_of_text(
        svg::shortened(kernel.name, svg::kWidth - 2 * svg::kMargin - 30 - svg::text_width(share)),
        "", 26);
  }
}

}  // namespace

std::string to_svg(const RooflinePlot& given, std::string_view id) {
  RooflinePlot plot = given;
  const auto unusable = [](const RooflinePlot::Ceiling& each) {
    return !svg::can_show(each.rate, true);
  };
  std::erase_if(plot.bandwidths, unusable);
  std::erase_if(plot.computes, unusable);
  const std::vector<Point> points = points_of(plot);
  Canvas canvas(id, plot.title,
                fmt::format("{}{}Horizontal: FLOPs a byte. Vertical: FLOPs a second. {} kernels "
                            "under {} ceilings of bandwidth and {} of compute.",
                            plot.description, plot.description.empty() ? "" : " ", points.size(),
                            plot.bandwidths.size(), plot.computes.size()));
  const Axes axes = axes_of(plot, points);
  if (!svg::can_show(axes.x.least, true) || !svg::can_show(axes.x.most, true) ||
      !svg::can_show(axes.y.least, true) || !svg::can_show(axes.y.most, true)) {
    canvas.line_of_text("There are no kernels and ceilings to show.", "faint");
    return canvas.finish();
  }
  std::vector<std::string> names;
  for (const RooflinePlot::Ceiling& each : plot.bandwidths)
    names.push_back(each.name + ", " + svg::tick_text(each.rate, "B/s"));
  for (const RooflinePlot::Ceiling& each : plot.computes)
    names.push_back(each.name + ", " + svg::tick_text(each.rate, "FLOP/s"));
  canvas.legend(names, [&](std::size_t i, double at, double middle) {
    canvas.path(fmt::format("M{:.1f} {:.1f}h22", at, middle), class_of_ceiling(plot, i));
  });
  Scale x(axes.x.least, axes.x.most, true), y(axes.y.least, axes.y.most, true);
  const svg::Frame frame = svg::draw_frame(canvas, x, y, "FLOPs a byte", "FLOP/s", 280);
  draw_ceilings(canvas, plot, x, y);
  draw_kernels(canvas, points, frame, x, y);
  const std::size_t left_out = plot.kernels.size() - points.size();
  if (left_out > 0)
    canvas.line_of_text(fmt::format("{} without FLOPs or bytes: not shown.", left_out), "faint");
  return canvas.finish();
}

}  // namespace brrr::measure
