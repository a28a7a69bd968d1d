#include "brrr/measure/svg_canvas.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "brrr/measure/markup.h"

namespace brrr::measure::svg {
namespace {

// Without the last character.
std::string_view without_last(std::string_view text) {
  while (text.size() > 1 && !begins_character(text.back())) text.remove_suffix(1);
  text.remove_suffix(1);
  return text;
}

const char* name_of(Anchor anchor) {
  constexpr std::array<const char*, 3> kNames = {"start", "middle", "end"};
  return kNames[static_cast<std::size_t>(anchor)];
}

// A distance between ticks of 1, 2 or 5 times a power of ten.
double round_step(double range, int intervals) {
  const double raw = range / intervals, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw * 0.999) return factor * power;
  return 10 * power;
}

std::vector<double> logarithmic_ticks(double least, double most) {
  const double decades = std::log10(most / least);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 7)));
  std::vector<double> ticks;
  for (int power = static_cast<int>(std::floor(std::log10(least)));
       power <= static_cast<int>(std::ceil(std::log10(most))); ++power) {
    if (power % stride != 0) continue;
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, power);
      if ((factor > 1 && decades > 2.5) || tick < least * 0.999 || tick > most * 1.001) continue;
      ticks.push_back(tick);
    }
  }
  return ticks;
}

}  // namespace

double text_width(std::string_view text, double size) {
  double ems = 0;
  for (const char c : text) {
    if (!begins_character(c)) continue;
    const bool narrow = std::string_view(" .,:;'|!()[]ijlft1").find(c) != std::string_view::npos;
    const bool wide = (c >= 'A' && c <= 'Z') || c == 'm' || c == 'w' || c == '%' || c == '@' ||
                      static_cast<std::uint8_t>(c) >= 0xe0;
    ems += narrow ? 0.38 : wide ? 0.82 : 0.60;
  }
  return ems * size;
}

std::vector<std::string> wrapped(std::string_view text, double width, double size) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string word = shortened(text.substr(0, end), width, size);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) {
      line = word;
    } else if (text_width(line, size) + text_width(" ", size) + text_width(word, size) <= width) {
      line += ' ';
      line += word;
    } else {
      lines.push_back(line);
      line = word;
    }
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

std::string shortened(std::string_view text, double width, double size) {
  if (text_width(text, size) <= width) return std::string(text);
  while (!text.empty() && text_width(text, size) + size > width) text = without_last(text);
  return std::string(text) + "\u2026";
}

std::string tick_text(double value, std::string_view unit) {
  constexpr std::array<std::pair<double, const char*>, 5> kPrefixes = {
      {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  for (const auto& [size, prefix] : kPrefixes) {
    // 999.96 would be written as 1e+03.
    if (std::abs(value) >= size * 0.9995)
      return fmt::format("{:.3g}{}{}{}", value / size, unit.empty() ? "" : " ", prefix, unit);
  }
  return fmt::format("{:.3g}{}{}", value, unit.empty() ? "" : " ", unit);
}

Canvas::Canvas(std::string_view id, std::string_view title, std::string_view description) {
  const std::string name = escaped(id);
  head_ = fmt::format(
      "role=\"img\" aria-labelledby=\"{0}-title {0}-desc\">\n<title id=\"{0}-title\">{1}</title>\n"
      "<desc id=\"{0}-desc\">{2}</desc>\n",
      name, escaped(title), escaped(description));
  constexpr double kBold = 1.12;  // as much wider
  for (const std::string& each : wrapped(title, kWidth - 2 * kMargin, kTitleSize * kBold)) {
    text(kMargin, y_ + kTitleSize, each, Anchor::start, "heading");
    y_ += kTitleSize + 4;
  }
  y_ += 6;
}

void Canvas::line_of_text(std::string_view content, const char* css, double indent) {
  text(kMargin + indent, y_ + kTextSize, content, Anchor::start, css);
  y_ += kRow;
}

void Canvas::text(double x, double y, std::string_view content, Anchor anchor, const char* css) {
  body_ +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x,
                  y, name_of(anchor), css, escaped(content));
}

void Canvas::line(double x1, double y1, double x2, double y2, std::string_view css) {
  body_ +=
      fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n",
                  x1, y1, x2, y2, css);
}

void Canvas::rect(double x, double y, double width, double height, std::string_view css) {
  body_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\"/>\n", x, y,
      width, height, css);
}

void Canvas::circle(double x, double y, double radius, std::string_view css) {
  body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" class=\"{}\"/>\n", x, y,
                       radius, css);
}

void Canvas::path(std::string_view commands, std::string_view css) {
  body_ += fmt::format("<path d=\"{}\" class=\"{}\"/>\n", commands, css);
}

void Canvas::marker(double x, double y, std::size_t series) {
  const std::string css = fmt::format("mark c{}", series % 6);
  switch (series % 4) {
    case 0: return circle(x, y, 3.5, css);
    case 1: return rect(x - 3.2, y - 3.2, 6.4, 6.4, css);
    case 2: return path(fmt::format("M{:.1f} {:.1f}l4.2 7.2h-8.4z", x, y - 4.4), css);
    default:
      return path(fmt::format("M{:.1f} {:.1f}l4.4 4.4l-4.4 4.4l-4.4 -4.4z", x, y - 4.4), css);
  }
}

std::string Canvas::finish() {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {:.0f} {:.0f}\" {}"
      "<rect x=\"0\" y=\"0\" width=\"100%\" height=\"100%\" class=\"paper\"/>\n{}</svg>\n",
      kWidth, y_ + kMargin, head_, body_);
}

bool can_show(double value, bool logarithmic) {
  // Beyond these, ratios of the ends of an axis overflow.
  constexpr double kMost = 1e100, kLeast = 1e-100;
  if (!std::isfinite(value) || std::abs(value) > kMost) return false;
  return !logarithmic || value >= kLeast;
}

Scale::Scale(double least, double most, bool logarithmic)
    : least_(least), most_(most), logarithmic_(logarithmic) {
  if (logarithmic) {
    if (most_ < least_ * 1.2) {
      least_ /= 2;
      most_ *= 2;
    }
    ticks_ = logarithmic_ticks(least_, most_);
    return;
  }
  // An axis around a single value that is too large for steps of 1.
  if (most_ - least_ <= std::abs(most_) * 1e-9) {
    const double around = most_ == 0 ? 1 : std::abs(most_) / 2;
    least_ -= around;
    most_ += around;
  }
  const double step = round_step(most_ - least_, 5);
  const double first = std::floor(least_ / step + 1e-6), last = std::ceil(most_ / step - 1e-6);
  least_ = first * step;
  most_ = last * step;
  const int count = static_cast<int>(std::lround(last - first));
  for (int i = 0; i <= count; ++i) ticks_.push_back((first + i) * step);
}

bool Scale::has_place(double value) const { return can_show(value, logarithmic_); }

double Scale::at(double value) const {
  const double share = logarithmic_ ? std::log(value / least_) / std::log(most_ / least_)
                                    : (value - least_) / (most_ - least_);
  return from_ + share * (to_ - from_);
}

Frame draw_frame(Canvas& canvas, Scale& x, Scale& y, std::string_view x_title,
                 std::string_view y_title, double height) {
  double widest = 0;
  for (const double tick : y.ticks()) widest = std::max(widest, text_width(tick_text(tick)));
  for (const std::string& each : wrapped(y_title, kWidth - 2 * kMargin))
    canvas.line_of_text(each, "faint");
  const Frame frame{.left = kMargin + widest + 6,
                    .right = kWidth - kMargin - 14,
                    .top = canvas.y() + 6,
                    .bottom = canvas.y() + 6 + height};
  x.place(frame.left, frame.right);
  y.place(frame.bottom, frame.top);
  for (const double tick : y.ticks()) {
    canvas.line(frame.left, y.at(tick), frame.right, y.at(tick), "grid");
    canvas.text(frame.left - 6, y.at(tick) + 4.5, tick_text(tick), Anchor::end);
  }
  double free_from = 0;  // labels that would touch the previous one are omitted
  for (const double tick : x.ticks()) {
    canvas.line(x.at(tick), frame.top, x.at(tick), frame.bottom, "grid");
    const double half = text_width(tick_text(tick)) / 2, at = x.at(tick);
    if (at - half < free_from) continue;
    canvas.text(at, frame.bottom + 17, tick_text(tick), Anchor::middle);
    free_from = at + half + 6;
  }
  canvas.line(frame.left, frame.bottom, frame.right, frame.bottom, "axis");
  canvas.line(frame.left, frame.top, frame.left, frame.bottom, "axis");
  canvas.move_down(frame.bottom - canvas.y() + 22);
  const double middle = (frame.left + frame.right) / 2;
  for (const std::string& each : wrapped(x_title, kWidth - 2 * kMargin)) {
    canvas.text(middle, canvas.y() + kTextSize, each, Anchor::middle, "faint");
    canvas.move_down(18);
  }
  canvas.move_down(4);
  return frame;
}

}  // namespace brrr::measure::svg
