// The two 16-bit floats as storage types: they convert to and from f32 and do no arithmetic of
// their own.
#pragma once

#include <bit>
#include <cstdint>

namespace brrr {

// The upper half of an f32; conversion rounds to nearest even and keeps NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    bits =
        static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
  }
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

// IEEE binary16, with denormals; conversion rounds to nearest even, overflows to infinity and keeps
// NaN.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7fffffffu;
    std::uint32_t result;
    if (magnitude > 0x7f800000u) {
      result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x477ff000u) {  // rounds past the largest finite value
      result = 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // denormal: let the f32 adder do the rounding
      const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(0x3f000000u);
      result = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
    } else {
      result = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    bits = static_cast<std::uint16_t>(sign | result);
  }
  explicit operator float() const {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    std::uint32_t result;
    if (magnitude >= 0x7c00u) {
      result = (magnitude << 13) + 0x70000000u;
    } else if (magnitude < 0x400u) {
      result = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    } else {
      result = (magnitude << 13) + 0x38000000u;
    }
    return std::bit_cast<float>(sign | result);
  }
};

}  // namespace brrr
