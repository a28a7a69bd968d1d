#include "brrr/nn/data/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "brrr/io/file_bytes.h"
#include "brrr/io/strided_bytes.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::data {
namespace {

// An element type of the format, and the dtype it is read as.
struct Element {
  std::uint8_t code;
  std::size_t bytes;
  bool is_signed;
  DType dtype;
};
constexpr std::array<Element, 6> kElements = {{{0x08, 1, false, i32},
                                               {0x09, 1, true, i32},
                                               {0x0B, 2, true, i32},
                                               {0x0C, 4, true, i32},
                                               {0x0D, 4, false, f32},
                                               {0x0E, 8, false, f64}}};

std::uint64_t big_endian(const std::uint8_t* bytes, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | bytes[i];
  return value;
}

void convert(const Element& element, const std::uint8_t* from, std::size_t count, void* to) {
  for (std::size_t i = 0; i < count; ++i, from += element.bytes) {
    const std::uint64_t bits = big_endian(from, element.bytes);
    if (element.dtype == f64) {
      static_cast<double*>(to)[i] = std::bit_cast<double>(bits);
      continue;
    }
    auto word = static_cast<std::uint32_t>(bits);
    if (element.is_signed) {  // sign-extend
      const int unused = 32 - 8 * static_cast<int>(element.bytes);
      word = static_cast<std::uint32_t>(static_cast<std::int32_t>(word << unused) >> unused);
    }
    std::memcpy(static_cast<std::uint32_t*>(to) + i, &word, sizeof(word));
  }
}

Tensor read_idx(const ByteSource& source) {
  std::array<std::uint8_t, 4> magic;
  source.read(magic.data(), 0, magic.size());
  for (std::uint64_t i = 0; i < 2; ++i) {
    if (magic[i] != 0)
      source.refuse(i, fmt::format("expected a 0 to begin with, got {}", magic[i]));
  }
  const auto element = std::ranges::find(kElements, magic[2], &Element::code);
  if (element == kElements.end()) {
    source.refuse(2, fmt::format("expected the type 0x08, 0x09, 0x0b, 0x0c, 0x0d or 0x0e, got "
                                 "{:#04x}",
                                 magic[2]));
  }
  const int rank = magic[3];
  if (rank > kMaxDims) {
    source.refuse(3, fmt::format("expected at most {} dimensions, got {}", kMaxDims, rank));
  }
  Dims shape;
  std::uint64_t at = magic.size();
  for (int d = 0; d < rank; ++d, at += 4) {
    std::array<std::uint8_t, 4> size;
    source.read(size.data(), at, size.size());
    shape.push_back(static_cast<std::int64_t>(big_endian(size.data(), size.size())));
  }
  const std::optional<std::int64_t> numel = try_numel(shape, 8);
  if (!numel) {
    source.refuse(
        4, fmt::format("expected a shape whose bytes fit into 63 bits, got {}", to_string(shape)));
  }
  const std::uint64_t bytes = static_cast<std::uint64_t>(*numel) * element->bytes;
  if (const std::uint64_t present = source.size() - at; bytes != present) {
    source.refuse(at + std::min(bytes, present),
                  fmt::format("expected {} bytes of elements for {}, got {}", bytes,
                              to_string(shape), present));
  }

  Tensor tensor = make_tensor(element->dtype, shape, cpu);
  constexpr std::size_t kAtOnce = 1 << 13;
  std::vector<std::uint8_t> block(kAtOnce * element->bytes);
  const auto count = static_cast<std::size_t>(*numel);
  for (std::size_t done = 0; done < count; done += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, count - done);
    source.read(block.data(), at + done * element->bytes, n * element->bytes);
    convert(*element, block.data(), n,
            static_cast<std::byte*>(tensor.data()) + done * size_of(element->dtype));
  }
  return tensor;
}

}  // namespace

Tensor load_idx(const std::string& path) { return read_idx(ByteSource::open("idx", path)); }

Tensor parse_idx(std::span<const std::byte> bytes, std::string_view name) {
  return read_idx(ByteSource("idx", name, bytes));
}

}  // namespace brrr::data
