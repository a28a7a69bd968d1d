// The two 16-bit floats as storage types: they convert to and from f32 and do no arithmetic of
// their own.
#pragma once

#include <cstdint>

namespace brrr {

namespace half_bits {
using u32 = std::uint32_t;
#define BRRR_SCALAR_FN inline
#include <brrr/tensor/half.inl>
#undef BRRR_SCALAR_FN
}  // namespace half_bits

// The upper half of an f32; conversion rounds to nearest even and keeps NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value)
      : bits(static_cast<std::uint16_t>(half_bits::bf16_bits_from(value))) {}
  explicit operator float() const { return half_bits::float_from_bf16(bits); }
};

// IEEE binary16, with denormals; conversion rounds to nearest even, overflows to infinity and keeps
// NaN.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value)
      : bits(static_cast<std::uint16_t>(half_bits::f16_bits_from(value))) {}
  explicit operator float() const { return half_bits::float_from_f16(bits); }
};

}  // namespace brrr
