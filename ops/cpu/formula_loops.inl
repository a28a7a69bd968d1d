// One contiguous loop for each formula row of ops.def and each type that it computes in.

namespace formulas {

#if BRRR_VECTOR_MATH
// One lane of the vector forms, as in generated code, so that both have the same bits.
#define BRRR_LANE1(name, symbol)                                                           \
  BRRR_SCALAR_FN float name(float a) { return BRRR_ISA::name(Lanes<float>::all(a)).v[0]; } \
  BRRR_SCALAR_FN double name(double a) { return BRRR_ISA::name(Lanes<double>::all(a)).v[0]; }
BRRR_INEXACT_FUNCTIONS(BRRR_LANE1)
#undef BRRR_LANE1
#endif

#define K(x) T(x)
#define BRRR_IN(x) const T* const x##_in = static_cast<const T*>(*in++);
#define BRRR_OUT(x) T* const x##_out = static_cast<T*>(*out++);
#define BRRR_NUMBER(x) const T x = static_cast<T>(*numbers++);
#define BRRR_LOAD(x) T x = x##_in[i];
#define BRRR_STORE(x) x##_out[i] = x;
#define BRRR_FORMULA(name, written, read, numbers_, ...)               \
  template <class T>                                                   \
  void name##_formula(void* const* out, const void* const* in,         \
                      [[maybe_unused]] const double* numbers, i64 n) { \
    BRRR_EACH(BRRR_IN, written)                                        \
    BRRR_EACH(BRRR_IN, read)                                           \
    BRRR_EACH(BRRR_OUT, written)                                       \
    BRRR_EACH(BRRR_NUMBER, numbers_)                                   \
    BRRR_INDEPENDENT_ITERATIONS                                        \
    for (i64 i = 0; i < n; ++i) {                                      \
      BRRR_EACH(BRRR_LOAD, written)                                    \
      BRRR_EACH(BRRR_LOAD, read)                                       \
      __VA_ARGS__;                                                     \
      BRRR_EACH(BRRR_STORE, written)                                   \
    }                                                                  \
  }
#include "brrr/dispatch/ops.def"
#undef K
#undef BRRR_IN
#undef BRRR_OUT
#undef BRRR_NUMBER
#undef BRRR_LOAD
#undef BRRR_STORE

}  // namespace formulas

constexpr void fill_formulas(LoopTable& table) {
  int row = 0;
#define BRRR_FORMULA(name, ...)                            \
  table.formula[row][0] = formulas::name##_formula<float>; \
  table.formula[row++][1] = formulas::name##_formula<double>;
#include "brrr/dispatch/ops.def"
}
