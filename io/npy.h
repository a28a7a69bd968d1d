// NumPy's .npy files: one tensor a file, of f32, f64, f16, i32, i64 or bool.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr {

// Reads versions 1, 2 and 3, little-endian, to the CPU. An array in Fortran's order becomes a
// transposed view of what the file holds. A damaged file is refused by an Error that reads
// "[npy] path: at byte N: reason"; nothing is allocated that the file does not hold.
Tensor load_npy(const std::string& path);
// The same from memory; errors say `name` in place of the path.
Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name = "memory");

// Writes version 1, row-major, whatever the strides and the device. Replaces the file
// atomically.
void save_npy(const std::string& path, const Tensor& tensor);
std::vector<std::byte> format_npy(const Tensor& tensor);

}  // namespace brrr
