// idx files, the format of MNIST: one array a file, big-endian.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <brrr/tensor/tensor.h>

namespace brrr::data {

// Integers of 8, 16 and 32 bits become i32; f32 and f64 stay. A damaged file is refused by an Error
// that reads "[idx] path: at byte N: reason"; nothing is allocated for elements that the file does
// not hold.
Tensor load_idx(const std::string& path);
// The same from memory; `name` stands for the path in errors.
Tensor parse_idx(std::span<const std::byte> bytes, std::string_view name = "memory");

}  // namespace brrr::data
