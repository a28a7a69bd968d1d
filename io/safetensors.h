// safetensors files: named tensors with text about them. All dtypes of brrr, bit for bit.
//
// A file is eight bytes of header length, a JSON header, then the tensors' bytes without a gap.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr {

// The contents of a file. Names are UTF-8 and unique.
struct SafeTensors {
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::map<std::string, std::string> metadata;

  const Tensor* find(std::string_view name) const;  // null when there is none
  const Tensor& at(std::string_view name) const;    // throws when there is none
};

// Reads to the CPU, each tensor into storage of its own, in the order of their bytes in the file.
// A damaged file is refused by an Error that reads "[safetensors] path: at byte N: reason"; the
// whole header is checked, every byte of the file accounted for, before anything is allocated for a
// tensor.
SafeTensors load_safetensors(const std::string& path);
// The same from memory; errors say `name` in place of the path.
SafeTensors parse_safetensors(std::span<const std::byte> bytes, std::string_view name = "memory");

// Writes tensors of any strides and device. Tensors of wider elements are written first, in a
// stable order, so that each starts at a multiple of its element size. Replaces the file
// atomically.
void save_safetensors(const std::string& path, const SafeTensors& file);
std::vector<std::byte> format_safetensors(const SafeTensors& file);

}  // namespace brrr
