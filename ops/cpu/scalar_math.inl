// The functions of <cmath> that expressions use, for float and double. On x86-64 with a glibc that
// has them, g++ is told of the vector forms in libmvec, and so puts them into vectorized loops
// without -ffast-math, which would flush denormals and lose -0. Vector and scalar forms differ in
// the last bits: see pointwise_loops.inl.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
#define BRRR_SIMD_MATH 1
#endif
#endif

#if defined(BRRR_SIMD_MATH)
#define BRRR_MATH_DECLARATION __attribute__((const, nothrow, simd("notinbranch")))
#else
#define BRRR_MATH_DECLARATION __attribute__((const, nothrow))
#endif

// Our own names for libm's symbols: the compiler knows `expf` as a builtin and would ignore the
// declaration.
#define BRRR_MATH1(name)                                                              \
  extern "C" BRRR_MATH_DECLARATION float brrr_##name##_f32(float) __asm__(#name "f"); \
  extern "C" BRRR_MATH_DECLARATION double brrr_##name##_f64(double) __asm__(#name);   \
  BRRR_SCALAR_FN float name(float a) { return brrr_##name##_f32(a); }                 \
  BRRR_SCALAR_FN double name(double a) { return brrr_##name##_f64(a); }
BRRR_MATH1(exp)
BRRR_MATH1(expm1)
BRRR_MATH1(log)
BRRR_MATH1(log1p)
BRRR_MATH1(sin)
BRRR_MATH1(cos)
BRRR_MATH1(tan)
BRRR_MATH1(tanh)
BRRR_MATH1(erf)
#undef BRRR_MATH1

extern "C" BRRR_MATH_DECLARATION float brrr_pow_f32(float, float) __asm__("powf");
extern "C" BRRR_MATH_DECLARATION double brrr_pow_f64(double, double) __asm__("pow");
BRRR_SCALAR_FN float pow(float a, float b) { return brrr_pow_f32(a, b); }
BRRR_SCALAR_FN double pow(double a, double b) { return brrr_pow_f64(a, b); }

// These are exact or correctly rounded, in whatever form.
#define BRRR_EXACT1(name)                                               \
  BRRR_SCALAR_FN float name(float a) { return __builtin_##name##f(a); } \
  BRRR_SCALAR_FN double name(double a) { return __builtin_##name(a); }
BRRR_EXACT1(sqrt)
BRRR_EXACT1(floor)
BRRR_EXACT1(ceil)
BRRR_EXACT1(trunc)
BRRR_EXACT1(rint)
BRRR_EXACT1(fabs)
#undef BRRR_EXACT1
BRRR_SCALAR_FN float fmod(float a, float b) { return __builtin_fmodf(a, b); }
BRRR_SCALAR_FN double fmod(double a, double b) { return __builtin_fmod(a, b); }
template <class T>
BRRR_SCALAR_FN T over(T a, T b) {
  return a / b;
}

// Whether an expression calls a function whose vector and scalar forms may differ in bits.
constexpr bool calls_inexact_math(const char* text) {
  constexpr const char* names[] = {"exp", "expm1", "log", "log1p", "sin",     "cos",
                                   "tan", "tanh",  "erf", "pow",   "logistic"};
  const auto in_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (const char* at = text; *at; ++at) {
    if (at != text && in_word(at[-1])) continue;
    for (const char* name : names) {
      const char *a = at, *b = name;
      while (*b && *a == *b) ++a, ++b;
      if (!*b && !in_word(*a)) return true;
    }
  }
  return false;
}
