// Reads idx files, the format of MNIST: one big-endian array per file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <brrr/tensor/tensor.h>

namespace brrr::data {

// Integers of 8, 16 and 32 bits become i32; f32 and f64 keep their type. A damaged file throws
// "[idx] path: at byte N: reason". Nothing is allocated before the file's size is checked against
// its header.
Tensor load_idx(const std::string& path);
// The same from memory; `name` replaces the path in errors.
Tensor parse_idx(std::span<const std::byte> bytes, std::string_view name = "memory");

}  // namespace brrr::data
