#include "brrr/measure/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "brrr/measure/bench.h"
#include "brrr/measure/markup.h"

namespace brrr::measure {
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> lines(rows.size());
  for (std::size_t column = 0; column < rows[0].size(); ++column) {
    std::size_t width = 0;
    for (const auto& row : rows) width = std::max(width, columns_in(row[column]));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::string& cell = rows[i][column];
      lines[i] +=
          column == 0 ? fmt::format("{:<{}}", cell, width) : fmt::format("  {:>{}}", cell, width);
    }
  }
  return lines;
}

void line(std::string& text, std::string_view name, std::string_view value) {
  text += fmt::format("{:<16} {}\n", name, value);
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, units[unit]);
}

std::string place_text(Device device, const Machine& machine) {
  const bool on_cpu = device.is_cpu() || machine.gpus.empty();
  return fmt::format("on {}\n", on_cpu ? machine.processor.model : machine.gpus.front().name);
}

std::string time_text(double seconds) {
  if (seconds < 1e-6) return number_text(seconds * 1e9) + " ns";
  if (seconds < 1e-3) return number_text(seconds * 1e6) + " µs";
  return seconds < 1 ? number_text(seconds * 1e3) + " ms" : number_text(seconds) + " s";
}

std::string percent_text(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::size_t columns_in(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::string clipped(const std::string& text, std::size_t columns) {
  if (columns_in(text) <= columns) return text;
  constexpr std::string_view kDots = "...";
  std::size_t end = 0;
  for (std::size_t kept = 0; end < text.size(); ++end) {
    if (begins_character(text[end]) && kept++ + kDots.size() == columns) break;
  }
  return text.substr(0, end).append(kDots);
}

std::string shortened(std::string text, std::size_t columns) {
  if (columns_in(text) <= columns) return text;
  const std::size_t open = text.find(" ("), close = text.find(')', open);
  if (open != text.npos && close != text.npos)
    return shortened(text.erase(open, close + 1 - open), columns);
  // A clause that says most of it is enough.
  for (std::size_t at = text.size(); at-- > columns / 2;) {
    if (std::string_view(",;:").find(text[at]) != std::string_view::npos &&
        columns_in(text.substr(0, at)) <= columns)
      return text.substr(0, at);
  }
  return clipped(text, columns);
}

double without_sign_of_nan(double loss) { return std::isnan(loss) ? std::abs(loss) : loss; }

std::string without_folder(const std::string& line) {
  const std::size_t folder = line.rfind('/', line.find(':'));
  return folder == line.npos ? line : line.substr(folder + 1);
}

}  // namespace brrr::measure
