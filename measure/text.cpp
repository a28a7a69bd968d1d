#include "brrr/measure/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "brrr/measure/bench.h"

namespace brrr::measure {

std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> lines(rows.size());
  for (std::size_t column = 0; column < rows[0].size(); ++column) {
    std::size_t width = 0;
    for (const auto& row : rows) width = std::max(width, row[column].size());
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

double without_sign_of_nan(double loss) { return std::isnan(loss) ? std::abs(loss) : loss; }

}  // namespace brrr::measure
