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

// What a file holds. Names are UTF-8, each there once.
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
// The same from memory; `name` stands for the path in errors.
SafeTensors parse_safetensors(std::span<const std::byte> bytes, std::string_view name = "memory");

// Writes tensors of any strides and device. Those of wider elements come first, else the order
// stays, so that each starts at a multiple of its element. The file appears whole or not at all.
void save_safetensors(const std::string& path, const SafeTensors& file);
std::vector<std::byte> format_safetensors(const SafeTensors& file);

}  // namespace brrr
