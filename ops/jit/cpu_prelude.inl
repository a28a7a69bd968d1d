// What every kernel for the system compiler starts with: the names that prelude.inl gives kernels
// on CUDA. It includes nothing, which halves the time to compile; the compiler of kernels closes
// the namespace.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#define BRRR_SCALAR_FN inline __attribute__((always_inline))
#define BRRR_FN static inline __attribute__((always_inline))
#define K(x) static_cast<T>(x)

namespace brrr {

#define BRRR_MATH(name)                                          \
  BRRR_FN float name(float a) { return __builtin_##name##f(a); } \
  BRRR_FN double name(double a) { return __builtin_##name(a); }
BRRR_MATH(exp)
BRRR_MATH(expm1)
BRRR_MATH(log)
BRRR_MATH(log1p)
BRRR_MATH(sqrt)
BRRR_MATH(sin)
BRRR_MATH(cos)
BRRR_MATH(tan)
BRRR_MATH(tanh)
BRRR_MATH(erf)
BRRR_MATH(floor)
BRRR_MATH(ceil)
BRRR_MATH(trunc)
BRRR_MATH(fabs)
BRRR_MATH(rint)
#undef BRRR_MATH
BRRR_FN float fmod(float a, float b) { return __builtin_fmodf(a, b); }
BRRR_FN double fmod(double a, double b) { return __builtin_fmod(a, b); }
BRRR_FN float pow(float a, float b) { return __builtin_powf(a, b); }
BRRR_FN double pow(double a, double b) { return __builtin_pow(a, b); }
template <class T>
BRRR_FN T over(T a, T b) {
  return a / b;
}

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

// The conversions of tensor/half.h.
template <class T>
BRRR_FN T widen(T a) {
  return a;
}
BRRR_FN float widen(bf16 a) { return __builtin_bit_cast(float, u32(a.bits) << 16); }
BRRR_FN float widen(f16 a) {
  const u32 magnitude = a.bits & 0x7fffu;
  u32 result = (magnitude << 13) + 0x38000000u;
  if (magnitude >= 0x7c00u) {
    result = (magnitude << 13) + 0x70000000u;
  } else if (magnitude < 0x400u) {
    result = __builtin_bit_cast(u32, float(magnitude) * 0x1p-24f);
  }
  return __builtin_bit_cast(float, (u32(a.bits & 0x8000u) << 16) | result);
}

template <class T, class V>
struct narrowing {
  static BRRR_SCALAR_FN T one(V a) { return static_cast<T>(a); }
};
// Conversions to integers saturate; NaN becomes 0.
#define BRRR_NARROWING(I, F, limit)                                                      \
  template <>                                                                            \
  struct narrowing<I, F> {                                                               \
    static BRRR_SCALAR_FN I one(F a) {                                                   \
      const I lowest = I(1ull << (sizeof(I) * 8 - 1));                                   \
      return a >= limit ? I(~u64(lowest)) : a >= -limit ? I(a) : a == a ? lowest : I(0); \
    }                                                                                    \
  };
BRRR_NARROWING(i32, float, 0x1p31f)
BRRR_NARROWING(i32, double, 0x1p31)
BRRR_NARROWING(i64, float, 0x1p63f)
BRRR_NARROWING(i64, double, 0x1p63)
#undef BRRR_NARROWING
template <class V>
struct narrowing<bf16, V> {
  static BRRR_SCALAR_FN bf16 one(float a) {
    const u32 u = __builtin_bit_cast(u32, a);
    const u32 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return {static_cast<u16>(a != a ? (u >> 16) | 0x40u : rounded)};
  }
};
template <class V>
struct narrowing<f16, V> {
  static BRRR_SCALAR_FN f16 one(float a) {
    const u32 u = __builtin_bit_cast(u32, a), sign = (u >> 16) & 0x8000u,
              magnitude = u & 0x7fffffffu;
    u32 result = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    if (magnitude > 0x7f800000u) {
      result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x477ff000u) {
      result = 0x7c00u;
    } else if (magnitude < 0x38800000u) {
      const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
      result = __builtin_bit_cast(u32, shifted) - 0x3f000000u;
    }
    return {static_cast<u16>(sign | result)};
  }
};
template <class T, class V>
BRRR_FN T narrow(V a) {
  return narrowing<T, V>::one(a);
}
template <class T>
BRRR_FN float rounded(float a) {
  return widen(narrow<T>(a));
}
