// Conversions between element types, the same in stamped and in generated loops. What C++ leaves
// undefined is defined here: a float outside an integer type's range gives the nearest end of it
// and NaN gives 0. Nonzero and NaN are true. It includes nothing, and expects scalar.inl,
// tensor/half.inl, BRRR_INDEPENDENT_ITERATIONS and the names u16, u32 and i64 before it.

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

// Values in registers: halves become float, everything else is itself.
template <class T>
BRRR_SCALAR_FN T widen(T a) {
  return a;
}
BRRR_SCALAR_FN float widen(bf16 a) { return float_from_bf16(a.bits); }
BRRR_SCALAR_FN float widen(f16 a) { return float_from_f16(a.bits); }

BRRR_SCALAR_FN bf16 bf16_from(float value) { return {static_cast<u16>(bf16_bits_from(value))}; }
BRRR_SCALAR_FN f16 f16_from(float value) { return {static_cast<u16>(f16_bits_from(value))}; }

template <class To, class From>
BRRR_SCALAR_FN To integer_from(From a) {
  const From low = static_cast<From>(lowest<To>());  // a power of two, so exact
  const From zero_for_nan = a == a ? a : From(0);
  const From above_low = zero_for_nan < low ? low : zero_for_nan;
  const bool too_high = above_low >= -low;
  return too_high ? highest<To>() : static_cast<To>(too_high ? From(0) : above_low);
}

// From a register to an element or another register.
template <class To, class From>
BRRR_SCALAR_FN To narrow(From a) {
  if constexpr (__is_same(To, bf16)) {
    return bf16_from(static_cast<float>(a));
  } else if constexpr (__is_same(To, f16)) {
    return f16_from(static_cast<float>(a));
  } else if constexpr (__is_same(To, bool)) {
    return a != From(0);
  } else if constexpr (scalar_traits<From>::floating && !scalar_traits<To>::floating) {
    return integer_from<To>(a);
  } else {
    return static_cast<To>(a);
  }
}
// A value as a store to T and a load from there would leave it.
template <class T>
BRRR_SCALAR_FN auto rounded(decltype(widen(T())) a) {
  if constexpr (__is_same(T, bf16)) {
    return float_from_bf16(bf16_bits_from(a));
  } else if constexpr (__is_same(T, f16)) {
    return float_from_f16(f16_bits_from(a));
  } else {
    return widen(narrow<T>(a));
  }
}

#if defined(__F16C__)
// The vectors of <immintrin.h>'s _mm256_cvtph_ps and _mm256_cvtps_ph, which is long to compile.
typedef float EightFloats __attribute__((vector_size(32)));
typedef short EightShorts __attribute__((vector_size(16)));
BRRR_SCALAR_FN void eight_from_half(float* out, const f16* in) {
  EightShorts halves;
  __builtin_memcpy(&halves, in, sizeof halves);
  const EightFloats floats = __builtin_ia32_vcvtph2ps256(halves);
  __builtin_memcpy(out, &floats, sizeof floats);
}
BRRR_SCALAR_FN void eight_half_from(f16* out, const float* in) {
  EightFloats floats;
  __builtin_memcpy(&floats, in, sizeof floats);
  const EightShorts halves = __builtin_ia32_vcvtps2ph256(floats, 0);
  __builtin_memcpy(out, &halves, sizeof halves);
}
#else
BRRR_SCALAR_FN void eight_from_half(float* out, const f16* in) {
  for (int i = 0; i < 8; ++i) out[i] = widen(in[i]);
}
BRRR_SCALAR_FN void eight_half_from(f16* out, const float* in) {
  for (int i = 0; i < 8; ++i) out[i] = f16_from(in[i]);
}
#endif

template <class To, class From>
void convert_loop(void* out, const void* in, i64 n) {
  To* to = static_cast<To*>(out);
  const From* from = static_cast<const From*>(in);
  if constexpr (__is_same(To, From)) {
    if (to != from) __builtin_memmove(to, from, static_cast<unsigned long>(n) * sizeof(To));
  } else if constexpr (__is_same(From, f16) || __is_same(To, f16)) {
    i64 i = 0;
    const auto eight = [](To* t, const From* f) {
      float values[8];
      if constexpr (__is_same(From, f16)) {
        eight_from_half(values, f);
        for (int j = 0; j < 8; ++j) t[j] = narrow<To>(values[j]);
      } else {
        for (int j = 0; j < 8; ++j) values[j] = narrow<float>(widen(f[j]));
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
    for (i64 i = 0; i < n; ++i) to[i] = narrow<To>(widen(from[i]));
  }
}
