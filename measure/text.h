// Text for people: aligned tables, lines with a name, units.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/measure/machine.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

// Lines of a table: the first column is left-aligned, the others right-aligned.
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows);
// A line with its name in the first column.
void line(std::string& text, std::string_view name, std::string_view value);
inline constexpr const char* kDisturbed =
    "~ the samples are widely spread: the machine was busy with other work\n";

std::string bytes_text(double bytes);  // "1.5 MiB"
template <std::integral Bytes>
std::string bytes_text(Bytes bytes) {
  return bytes_text(static_cast<double>(bytes));
}
std::string time_text(double seconds);   // "412 µs", "1.23 ms"
std::string percent_text(double share);  // "41 %"
double without_sign_of_nan(double loss);
// "on NVIDIA H200", a line.
std::string place_text(Device device, const Machine& machine);

}  // namespace brrr::measure
