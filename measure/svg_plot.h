// Plots as SVG, for reports and files: lines, bars, rooflines, lanes of spans.
//
// Each plot has a title, axes with units, a legend and a description for screen readers. Colours
// are CSS classes with values for light and dark pages; series differ in dashes and markers as
// well. A plot is as wide as its place on the page; its text is legible from 360 pixels on.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace brrr::measure {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // by rising x
};

struct PlotAxis {
  std::string title;  // with the unit
  bool logarithmic = false;
};

// Points that an axis cannot show (not finite; not positive on a logarithmic axis) are omitted, and
// the plot states their number.
struct LinePlot {
  std::string title, description;
  PlotAxis x, y;
  std::vector<Series> series = {};
  bool steps = false;  // a value holds until the next point
};

// Horizontal bars in groups, a bar of each measure in a group, from zero. Values in the unit "us"
// are written as "3.1 ms" where they are that large. On a logarithmic axis,
// which has no zero, they are dots.
struct BarGroup {
  std::string name;
  std::vector<double> values;  // one of each measure; not finite: shown as missing
  // Shares of each value by part, which fill its bar from the left; empty: it is not divided.
  std::vector<std::vector<double>> shares = {};
};
struct BarPlot {
  std::string title, description;
  std::string unit;
  std::vector<std::string> measures = {};  // "measured", "predicted"
  std::vector<std::string> parts = {};     // "overhead", "bandwidth"
  std::vector<std::size_t> colors = {};    // of the parts; empty: in their order
  std::vector<BarGroup> groups = {};
  bool logarithmic = false;
};

struct KernelPoint {
  std::string name;
  double flops = 0, bytes = 0, seconds = 0;
  double share = 0;       // of the time of all kernels, from 0 to 1: the area of its point
  bool measured = false;  // the time; else it is predicted
};

// FLOPs a second by FLOPs a byte, both logarithmic. Kernels without FLOPs, bytes or time are
// omitted, as are ceilings that are not positive.
struct RooflinePlot {
  struct Ceiling {
    std::string name;
    double rate = 0;  // bytes or FLOPs a second
  };
  std::string title, description;
  std::vector<Ceiling> bandwidths = {}, computes = {};
  std::vector<KernelPoint> kernels =
      {};  // the first ones have numbers in the plot, and names below it
};

// Spans in lanes over time, as a profiler shows them. Spans of a kind that is later in `kinds` are
// drawn over those of an earlier one. Spans and gaps too narrow to be seen are widened and filled.
inline constexpr std::size_t kLaneColors = 7;
struct LanePlot {
  struct Span {
    double start = 0, end = 0;
    std::size_t kind = 0;  // an index of `kinds`
  };
  struct Lane {
    std::string name;
    std::vector<Span> spans;  // by rising start
  };
  std::string title, description;
  std::string x;   // what the horizontal axis is, with the unit; it begins at zero
  double end = 0;  // of the axis, if no span ends later
  std::vector<std::string> kinds = {};
  std::vector<std::size_t> colors = {};  // of the kinds, below kLaneColors; empty: in their order
  std::vector<Lane> lanes = {};
};

// `id`: unique in the page; the ids of the title and the description start with it.
std::string to_svg(const LinePlot& plot, std::string_view id);
std::string to_svg(const BarPlot& plot, std::string_view id);
std::string to_svg(const RooflinePlot& plot, std::string_view id);
std::string to_svg(const LanePlot& plot, std::string_view id);

// The CSS of all plots, which a page needs once.
std::string plot_style();
// A plot with its CSS, for a file of its own.
std::string with_style(const std::string& svg);

}  // namespace brrr::measure
