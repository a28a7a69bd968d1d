// The JSON header of a safetensors file: its checked reading and its writing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/io/file_bytes.h>
#include <brrr/tensor/dims.h>
#include <brrr/tensor/dtype.h>

namespace brrr::safetensors {

inline constexpr std::uint64_t kLengthBytes = 8;
inline constexpr std::uint64_t kMostHeader = 100'000'000;  // as the reference implementation has it

struct TensorInfo {
  std::string name{};
  DType dtype = DType::f32;
  Dims shape{};
  std::uint64_t begin = 0, end = 0;  // relative to the first byte after the header
  // The position in the file, for errors.
  std::uint64_t name_at = 0, shape_at = 0, offsets_at = 0;
};

struct Header {
  std::vector<TensorInfo> entries;
  std::map<std::string, std::string> metadata;
};

// `text` is the header, which starts at byte `base` of the source. Checks the grammar only; the
// caller checks sizes and offsets.
Header parse_header(const ByteSource& source, std::string_view text, std::uint64_t base);

// The JSON text, padded with spaces to a multiple of eight. Refuses names that are reserved, occur
// twice or are not UTF-8.
std::string format_header(const Header& header);

}  // namespace brrr::safetensors
