// The functions of <cmath> that expressions use, for float and double. Loops use the vector forms
// of lanes.inl where there are any, since vector and scalar forms of functions with inexact results
// differ in the last bits. Before it: dispatch/functions.def.

#define BRRR_MATH1(name, ...)                                           \
  BRRR_SCALAR_FN float name(float a) { return __builtin_##name##f(a); } \
  BRRR_SCALAR_FN double name(double a) { return __builtin_##name(a); }
#define BRRR_MATH2(name, ...)                                                       \
  BRRR_SCALAR_FN float name(float a, float b) { return __builtin_##name##f(a, b); } \
  BRRR_SCALAR_FN double name(double a, double b) { return __builtin_##name(a, b); }
BRRR_EXACT_FUNCTIONS(BRRR_MATH1)
BRRR_EXACT_FUNCTIONS2(BRRR_MATH2)
#if BRRR_SCALARS_ARE_LANES
// One lane of the vector forms, so that a value has the same bits wherever it is computed.
// lanes.inl defines them.
#define BRRR_LANE1(name, ...)         \
  BRRR_SCALAR_FN float name(float a); \
  BRRR_SCALAR_FN double name(double a);
#define BRRR_LANE2(name, ...)                  \
  BRRR_SCALAR_FN float name(float a, float b); \
  BRRR_SCALAR_FN double name(double a, double b);
BRRR_INEXACT_FUNCTIONS(BRRR_LANE1)
BRRR_INEXACT_FUNCTIONS2(BRRR_LANE2)
#undef BRRR_LANE1
#undef BRRR_LANE2
#else
BRRR_INEXACT_FUNCTIONS(BRRR_MATH1)
BRRR_INEXACT_FUNCTIONS2(BRRR_MATH2)
#endif
#undef BRRR_MATH1
#undef BRRR_MATH2
template <class T>
BRRR_SCALAR_FN T over(T a, T b) {
  return a / b;
}
