// The functions of <cmath> that expressions use, for float and double. Loops use
// the vector forms of lanes.inl where there are any, since vector and scalar forms of functions
// with inexact results differ in the last bits.

#define BRRR_MATH1(name)                                                \
  BRRR_SCALAR_FN float name(float a) { return __builtin_##name##f(a); } \
  BRRR_SCALAR_FN double name(double a) { return __builtin_##name(a); }
BRRR_MATH1(exp)
BRRR_MATH1(expm1)
BRRR_MATH1(log)
BRRR_MATH1(log1p)
BRRR_MATH1(sin)
BRRR_MATH1(cos)
BRRR_MATH1(tan)
BRRR_MATH1(tanh)
BRRR_MATH1(erf)
BRRR_SCALAR_FN float pow(float a, float b) { return __builtin_powf(a, b); }
BRRR_SCALAR_FN double pow(double a, double b) { return __builtin_pow(a, b); }

// These are exact or correctly rounded, in whatever form.
#define BRRR_EXACT_MATH1(X) X(sqrt) X(floor) X(ceil) X(trunc) X(rint) X(fabs)
BRRR_EXACT_MATH1(BRRR_MATH1)
#undef BRRR_MATH1
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
