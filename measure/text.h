// Text for people: aligned tables, lines with a name, units.
#pragma once

#include <concepts>
#include <cstddef>
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
// The columns of UTF-8 text on a terminal, where each character takes one.
std::size_t columns_in(std::string_view text);
// At most `columns`; what does not fit ends in "...".
std::string clipped(const std::string& text, std::size_t columns);
// The same of a sentence. Where that is too long it has no parentheses, then fewer clauses.
std::string shortened(std::string text, std::size_t columns);
double without_sign_of_nan(double loss);
// "on NVIDIA H200", a line.
std::string place_text(Device device, const Machine& machine);

// "train.cpp:31 in loss" of "/home/me/train.cpp:31 in loss".
std::string without_folder(const std::string& line);

}  // namespace brrr::measure
