// Drawing tools of plots: a canvas that collects SVG elements, scales with ticks, and estimates of
// text widths, so that labels do not overlap.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace brrr::measure::svg {

// In units of the view box. A phone shows 420 of them in some 350 pixels.
inline constexpr double kWidth = 420, kMargin = 8;
inline constexpr double kTitleSize = 15, kTextSize = 13;

// The estimated width in a sans-serif font; an upper bound for most fonts.
double text_width(std::string_view text, double size = kTextSize);
// Breaks text into lines of at most this width; a wider word is cut.
std::vector<std::string> wrapped(std::string_view text, double width, double size = kTextSize);
// Text cut to the width, with an ellipsis.
std::string shortened(std::string_view text, double width, double size = kTextSize);

// "1.5k", "20M"; with a unit "20 MB/s"
std::string tick_text(double value, std::string_view unit = "");

enum class Anchor { start, middle, end };

// Elements from the top down; `y()` is where the next one goes.
class Canvas {
 public:
  // Draws the title.
  Canvas(std::string_view id, std::string_view title, std::string_view description);

  double y() const { return y_; }
  void move_down(double by) { y_ += by; }
  void line_of_text(std::string_view text, const char* css = "", double indent = 0);

  void text(double x, double y, std::string_view text, Anchor anchor = Anchor::start,
            const char* css = "");
  void line(double x1, double y1, double x2, double y2, std::string_view css);
  void rect(double x, double y, double width, double height, std::string_view css);
  void circle(double x, double y, double radius, std::string_view css);
  void path(std::string_view commands, std::string_view css);
  // The marker of a series: its shape distinguishes series where colours do not.
  void marker(double x, double y, std::size_t series);

  // The legend: names with samples, in as many rows as needed. `sample` draws one of width 22.
  template <class Sample>
  void legend(const std::vector<std::string>& names, Sample sample) {
    double x = kMargin;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string name = shortened(names[i], kWidth - 2 * kMargin - 28);
      const double width = 28 + text_width(name) + 14;
      if (x > kMargin && x + width - 14 > kWidth - kMargin) {
        x = kMargin;
        y_ += kRow;
      }
      sample(i, x, y_ + kRow / 2);
      text(x + 28, y_ + kRow / 2 + 4.5, name);
      x += width;
    }
    if (!names.empty()) y_ += kRow + 4;
  }

  std::string finish();

 private:
  static constexpr double kRow = 19;

  std::string head_, body_;
  double y_ = kMargin;
};

// Maps values to positions on an axis.
class Scale {
 public:
  // `least` and `most` are finite, and positive if the scale is logarithmic. A linear scale is
  // extended to ticks at both ends.
  Scale(double least, double most, bool logarithmic);
  void place(double from, double to) {
    from_ = from;
    to_ = to;
  }
  bool has_place(double value) const;
  double at(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  double least() const { return least_; }
  double most() const { return most_; }

 private:
  double least_, most_, from_ = 0, to_ = 1;
  bool logarithmic_;
  std::vector<double> ticks_;
};

// Whether an axis can show the value.
bool can_show(double value, bool logarithmic);

// The area between two axes, with grid lines, tick labels and the axes' titles.
struct Frame {
  double left = 0, right = 0, top = 0, bottom = 0;
};
Frame draw_frame(Canvas& canvas, Scale& x, Scale& y, std::string_view x_title,
                 std::string_view y_title, double height);

}  // namespace brrr::measure::svg
