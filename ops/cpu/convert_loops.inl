// Conversions between any two element types. What C++ leaves undefined is defined here: a float
// outside an integer type's range gives the nearest end of it and NaN gives 0. Nonzero and NaN are
// true.

struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

template <DType>
struct element;
template <>
struct element<DType::f32> {
  using type = float;
};
template <>
struct element<DType::f64> {
  using type = double;
};
template <>
struct element<DType::f16> {
  using type = Half;
};
template <>
struct element<DType::bf16> {
  using type = Brain;
};
template <>
struct element<DType::i32> {
  using type = std::int32_t;
};
template <>
struct element<DType::i64> {
  using type = i64;
};
template <>
struct element<DType::boolean> {
  using type = bool;
};

// The same rounding as brrr::BFloat16, without branches.
BRRR_SCALAR_FN Brain brain_from(float value) {
  const std::uint32_t u = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (u >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}
BRRR_SCALAR_FN float from_brain(Brain value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16);
}

// The same rounding as brrr::Float16.
BRRR_SCALAR_FN Half half_from(float value) {
  const std::uint32_t u = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  const std::uint32_t magnitude = u & 0x7fffffffu;
  const float shifted = __builtin_bit_cast(float, magnitude < 0x38800000u ? magnitude : 0u) + 0.5f;
  const std::uint32_t denormal = __builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  std::uint32_t result = magnitude < 0x38800000u ? denormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : result;
  return {static_cast<std::uint16_t>(sign | result)};
}
BRRR_SCALAR_FN float from_half(Half value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  const std::uint32_t special = (magnitude << 13) + 0x70000000u;
  const std::uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
  const std::uint32_t denormal =
      __builtin_bit_cast(std::uint32_t, static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f);
  const std::uint32_t normal = (magnitude << 13) + 0x38000000u;
  const std::uint32_t result = magnitude >= 0x7c00u ? special | quiet
                               : magnitude < 0x400u ? denormal
                                                    : normal;
  return __builtin_bit_cast(float, sign | result);
}

template <class To, class From>
BRRR_SCALAR_FN To integer_from(From a) {
  const From low = static_cast<From>(lowest<To>());  // a power of two, so exact
  const From zero_for_nan = a == a ? a : From(0);
  const From above_low = zero_for_nan < low ? low : zero_for_nan;
  const bool too_high = above_low >= -low;
  return too_high ? highest<To>() : static_cast<To>(too_high ? From(0) : above_low);
}

template <class To, class From>
BRRR_SCALAR_FN To converted(From a) {
  if constexpr (__is_same(From, Brain)) {
    return converted<To>(from_brain(a));
  } else if constexpr (__is_same(To, Brain)) {
    return brain_from(static_cast<float>(a));
  } else if constexpr (__is_same(To, bool)) {
    return a != From(0);
  } else if constexpr (scalar_traits<From>::floating && !scalar_traits<To>::floating) {
    return integer_from<To>(a);
  } else {
    return static_cast<To>(a);
  }
}

#if defined(__F16C__)
BRRR_SCALAR_FN void eight_from_half(float* out, const Half* in) {
  _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in))));
}
BRRR_SCALAR_FN void eight_half_from(Half* out, const float* in) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtps_ph(_mm256_loadu_ps(in), 0));
}
#else
BRRR_SCALAR_FN void eight_from_half(float* out, const Half* in) {
  for (int i = 0; i < 8; ++i) out[i] = from_half(in[i]);
}
BRRR_SCALAR_FN void eight_half_from(Half* out, const float* in) {
  for (int i = 0; i < 8; ++i) out[i] = half_from(in[i]);
}
#endif

template <class To, class From>
void convert_loop(void* out, const void* in, i64 n) {
  To* to = static_cast<To*>(out);
  const From* from = static_cast<const From*>(in);
  if constexpr (__is_same(To, From)) {
    if (to != from) __builtin_memmove(to, from, static_cast<std::size_t>(n) * sizeof(To));
  } else if constexpr (__is_same(From, Half) || __is_same(To, Half)) {
    i64 i = 0;
    const auto eight = [](To* t, const From* f) {
      float values[8];
      if constexpr (__is_same(From, Half)) {
        eight_from_half(values, f);
        for (int j = 0; j < 8; ++j) t[j] = converted<To>(values[j]);
      } else {
        for (int j = 0; j < 8; ++j) values[j] = converted<float>(f[j]);
        eight_half_from(t, values);
      }
    };
    for (; i + 8 <= n; i += 8) eight(to + i, from + i);
    if (i < n) {
      From last[8] = {};
      To results[8];
      for (i64 j = i; j < n; ++j) last[j - i] = from[j];
      eight(results, last);
      for (i64 j = i; j < n; ++j) to[j] = results[j - i];
    }
  } else {
    BRRR_INDEPENDENT_ITERATIONS
    for (i64 i = 0; i < n; ++i) to[i] = converted<To>(from[i]);
  }
}

template <DType From>
constexpr void fill_convert_from(LoopTable& table) {
  using F = typename element<From>::type;
#define X(e, cpp, text)                                               \
  table.convert[static_cast<int>(From)][static_cast<int>(DType::e)] = \
      convert_loop<typename element<DType::e>::type, F>;
  BRRR_DTYPES(X)
#undef X
}

constexpr void fill_convert(LoopTable& table) {
#define X(e, cpp, text) fill_convert_from<DType::e>(table);
  BRRR_DTYPES(X)
#undef X
}
