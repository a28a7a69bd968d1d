// Conversions between f32 and the bits of the two 16-bit floats: one source for tensor/half.h,
// eager loops and kernels generated for the CPU. They round to nearest even without branches,
// overflow to infinity and preserve NaN (f16 makes it quiet). The bits are a u32's low half, so
// that a loop that rounds in registers has values of one size.
// The file includes nothing and expects BRRR_SCALAR_FN and u32 to be defined before it.

BRRR_SCALAR_FN float float_from_bf16(u32 bits) { return __builtin_bit_cast(float, bits << 16); }
BRRR_SCALAR_FN float float_from_f16(u32 bits) {
  const u32 sign = (bits & 0x8000u) << 16;
  const u32 magnitude = bits & 0x7fffu;
  const u32 special = (magnitude << 13) + 0x70000000u;
  const u32 quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
  const u32 denormal =
      __builtin_bit_cast(u32, static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f);
  const u32 normal = (magnitude << 13) + 0x38000000u;
  const u32 result = magnitude >= 0x7c00u ? special | quiet
                     : magnitude < 0x400u ? denormal
                                          : normal;
  return __builtin_bit_cast(float, sign | result);
}

// Of the bits of one f32, or of a vector of them.
template <class Bits>
BRRR_SCALAR_FN Bits bf16_bits_of(Bits u) {
  const Bits rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const Bits nan = (u >> 16) | 0x40u;
  return (u & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}
BRRR_SCALAR_FN u32 bf16_bits_from(float value) {
  return bf16_bits_of(__builtin_bit_cast(u32, value));
}
BRRR_SCALAR_FN u32 f16_bits_from(float value) {
  const u32 u = __builtin_bit_cast(u32, value);
  const u32 sign = (u >> 16) & 0x8000u;
  const u32 magnitude = u & 0x7fffffffu;
  const float shifted = __builtin_bit_cast(float, magnitude < 0x38800000u ? magnitude : 0u) + 0.5f;
  const u32 denormal = __builtin_bit_cast(u32, shifted) - 0x3f000000u;
  const u32 normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  u32 result = magnitude < 0x38800000u ? denormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : result;
  return sign | result;
}
