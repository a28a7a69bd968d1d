// The functions of <cmath> that expressions use, for float and double. Loops use the vector forms
// of lanes.inl where there are any, since vector and scalar forms of functions with inexact results
// differ in the last bits. Before it: dispatch/functions.def.

#define BRRR_MATH1(name, ...)                                           \
  BRRR_SCALAR_FN float name(float a) { return __builtin_##name##f(a); } \
  BRRR_SCALAR_FN double name(double a) { return __builtin_##name(a); }
BRRR_EXACT_FUNCTIONS(BRRR_MATH1)
#if BRRR_SCALARS_ARE_LANES
// One lane of the vector forms, so that a value has the same bits wherever it is computed.
// lanes.inl defines them.
#define BRRR_LANE1(name, ...)         \
  BRRR_SCALAR_FN float name(float a); \
  BRRR_SCALAR_FN double name(double a);
BRRR_INEXACT_FUNCTIONS(BRRR_LANE1)
#undef BRRR_LANE1
BRRR_SCALAR_FN float pow(float a, float b);
BRRR_SCALAR_FN double pow(double a, double b);
#else
BRRR_INEXACT_FUNCTIONS(BRRR_MATH1)
BRRR_SCALAR_FN float pow(float a, float b) { return __builtin_powf(a, b); }
BRRR_SCALAR_FN double pow(double a, double b) { return __builtin_pow(a, b); }
#endif
#undef BRRR_MATH1
BRRR_SCALAR_FN float fmod(float a, float b) { return __builtin_fmodf(a, b); }
BRRR_SCALAR_FN double fmod(double a, double b) { return __builtin_fmod(a, b); }
template <class T>
BRRR_SCALAR_FN T over(T a, T b) {
  return a / b;
}
