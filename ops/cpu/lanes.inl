// Lanes<T>: a vector of floats that an expression computes with as it does with one float. The
// functions whose results are inexact call libmvec's vector forms by name. Left to the vectorizer,
// such calls need -ffast-math (which flushes denormals and loses -0) or an attribute that g++ alone
// has: compiled by Clang, tanh took 20 to 30 times as long.
#if BRRR_VECTOR_MATH

#if defined(__AVX2__)
constexpr int kVectorBytes = 32;
#define BRRR_VECTOR_NAME_F32(arguments, name) _ZGVdN8##arguments##_##name##f
#define BRRR_VECTOR_NAME_F64(arguments, name) _ZGVdN4##arguments##_##name
#else
constexpr int kVectorBytes = 16;
#define BRRR_VECTOR_NAME_F32(arguments, name) _ZGVbN4##arguments##_##name##f
#define BRRR_VECTOR_NAME_F64(arguments, name) _ZGVbN2##arguments##_##name
#endif

typedef float FloatVector __attribute__((vector_size(kVectorBytes)));
typedef double DoubleVector __attribute__((vector_size(kVectorBytes)));
template <class T>
struct vector_of {
  using type = FloatVector;
};
template <>
struct vector_of<double> {
  using type = DoubleVector;
};

template <class T>
struct Lanes {
  using Vector = typename vector_of<T>::type;
  using Mask = decltype(Vector{} < Vector{});
  static constexpr i64 count = kVectorBytes / static_cast<i64>(sizeof(T));

  Vector v;

  BRRR_SCALAR_FN Lanes(Vector values) : v(values) {}
  explicit BRRR_SCALAR_FN Lanes(double x) : v(static_cast<T>(x) - Vector{}) {}  // keeps -0
  static BRRR_SCALAR_FN Lanes all(T x) { return x - Vector{}; }

  static BRRR_SCALAR_FN Lanes load(const T* from) {
    Vector values;
    __builtin_memcpy(&values, from, sizeof values);
    return values;
  }
  BRRR_SCALAR_FN void store(T* to) const { __builtin_memcpy(to, &v, sizeof v); }
};

template <class T>
struct scalar_traits<Lanes<T>> : scalar_traits<T> {};

template <class T>
BRRR_SCALAR_FN Lanes<T> operator-(Lanes<T> a) {
  return -a.v;
}
#define BRRR_OPERATOR(Result, op)                             \
  template <class T>                                          \
  BRRR_SCALAR_FN Result operator op(Lanes<T> a, Lanes<T> b) { \
    return a.v op b.v;                                        \
  }
BRRR_OPERATOR(Lanes<T>, +)
BRRR_OPERATOR(Lanes<T>, -)
BRRR_OPERATOR(Lanes<T>, *)
BRRR_OPERATOR(Lanes<T>, /)
BRRR_OPERATOR(typename Lanes<T>::Mask, <)
BRRR_OPERATOR(typename Lanes<T>::Mask, <=)
BRRR_OPERATOR(typename Lanes<T>::Mask, >)
BRRR_OPERATOR(typename Lanes<T>::Mask, >=)
BRRR_OPERATOR(typename Lanes<T>::Mask, ==)
BRRR_OPERATOR(typename Lanes<T>::Mask, !=)
#undef BRRR_OPERATOR

template <class T>
BRRR_SCALAR_FN Lanes<T> where(typename Lanes<T>::Mask condition, Lanes<T> a, Lanes<T> b) {
  return condition ? a.v : b.v;
}

#if defined(__AVX2__)
// Those of scalar.inl with one comparison less. vmaxps and vminps give the second operand if either
// is NaN, so a NaN in the first is put back.
#define BRRR_EXTREME(name, T, instruction)                                     \
  BRRR_SCALAR_FN Lanes<T> name(Lanes<T> a, Lanes<T> b) {                       \
    return where(a != a, a, Lanes<T>(__builtin_ia32_##instruction(a.v, b.v))); \
  }
BRRR_EXTREME(maximum, float, maxps256)
BRRR_EXTREME(maximum, double, maxpd256)
BRRR_EXTREME(minimum, float, minps256)
BRRR_EXTREME(minimum, double, minpd256)
#undef BRRR_EXTREME
#endif

// As a store to the halves T and a load from there would leave them.
template <class T>
BRRR_SCALAR_FN Lanes<float> rounded(Lanes<float> a) {
  if constexpr (__is_same(T, bf16)) {
    typedef u32 BitsVector __attribute__((vector_size(kVectorBytes)));
    BitsVector bits;
    __builtin_memcpy(&bits, &a.v, sizeof bits);
    const BitsVector quiet = bits | 0x400000u;
    bits += 0x7fffu + (bits >> 16 & 1u);
    bits = (a.v != a.v ? quiet : bits) & 0xffff0000u;
    __builtin_memcpy(&a.v, &bits, sizeof bits);
    return a;
  } else {
    constexpr i64 count = Lanes<float>::count;
    float values[count];
    a.store(values);
    if constexpr (count == 8) {
      f16 halves[count];
      eight_half_from(halves, values);
      eight_from_half(values, halves);
    } else {
      for (i64 i = 0; i < count; ++i) values[i] = rounded<T>(values[i]);
    }
    return Lanes<float>::load(values);
  }
}

// Those of vector_math.cpp take the same time for all arguments, and have libmvec's bits.
#define BRRR_MATH1(name, symbol)                              \
  extern "C" __attribute__((const, nothrow))                  \
  FloatVector BRRR_VECTOR_NAME_F32(v, symbol)(FloatVector);   \
  extern "C" __attribute__((const, nothrow))                  \
  DoubleVector BRRR_VECTOR_NAME_F64(v, symbol)(DoubleVector); \
  template <class T>                                          \
  BRRR_SCALAR_FN Lanes<T> name(Lanes<T> a) {                  \
    if constexpr (__is_same(T, float)) {                      \
      return BRRR_VECTOR_NAME_F32(v, symbol)(a.v);            \
    } else {                                                  \
      return BRRR_VECTOR_NAME_F64(v, symbol)(a.v);            \
    }                                                         \
  }
BRRR_INEXACT_FUNCTIONS(BRRR_MATH1)
#undef BRRR_MATH1
#if defined(__AVX2__)
// Where some arguments are not ordinary. Inlined, it slows down the loop for those that are.
static __attribute__((noinline)) FloatVector exp_of_any(FloatVector a) {
  const auto vanishes = a < kLeastForExp;
  const auto overflows = a > kMostForExp;
  if (!all_of(are_ordinary_for_exp(a) | vanishes | overflows)) return exp<float>(Lanes<float>(a)).v;
  const FloatVector infinite = __builtin_inff() - FloatVector{};
  return overflows ? infinite : vanishes ? FloatVector{} : exp_of_ordinary(a);
}
BRRR_SCALAR_FN Lanes<float> exp(Lanes<float> a) {
  return __builtin_expect(all_of(are_ordinary_for_exp(a.v)), 1) ? exp_of_ordinary(a.v)
                                                                : exp_of_any(a.v);
}
#endif
#define BRRR_MATH2(name, symbol, kinds)                                      \
  extern "C" __attribute__((const, nothrow))                                 \
  FloatVector BRRR_VECTOR_NAME_F32(vv, symbol)(FloatVector, FloatVector);    \
  extern "C" __attribute__((const, nothrow))                                 \
  DoubleVector BRRR_VECTOR_NAME_F64(vv, symbol)(DoubleVector, DoubleVector); \
  BRRR_SCALAR_FN Lanes<float> name(Lanes<float> a, Lanes<float> b) {         \
    return BRRR_VECTOR_NAME_F32(vv, symbol)(a.v, b.v);                       \
  }                                                                          \
  BRRR_SCALAR_FN Lanes<double> name(Lanes<double> a, Lanes<double> b) {      \
    return BRRR_VECTOR_NAME_F64(vv, symbol)(a.v, b.v);                       \
  }
BRRR_INEXACT_FUNCTIONS2(BRRR_MATH2)
#undef BRRR_MATH2

#define BRRR_MATH1(name)                                             \
  template <class T>                                                 \
  BRRR_SCALAR_FN Lanes<T> name(Lanes<T> a) {                         \
    for (i64 i = 0; i < Lanes<T>::count; ++i) a.v[i] = name(a.v[i]); \
    return a;                                                        \
  }
BRRR_EXACT_FUNCTIONS(BRRR_MATH1)
#undef BRRR_MATH1

#if BRRR_SCALARS_ARE_LANES
#define BRRR_MATH1(name, symbol)                                                 \
  BRRR_SCALAR_FN float name(float a) { return name(Lanes<float>::all(a)).v[0]; } \
  BRRR_SCALAR_FN double name(double a) { return name(Lanes<double>::all(a)).v[0]; }
BRRR_INEXACT_FUNCTIONS(BRRR_MATH1)
#undef BRRR_MATH1
#define BRRR_MATH2(name, ...)                                       \
  BRRR_SCALAR_FN float name(float a, float b) {                     \
    return name(Lanes<float>::all(a), Lanes<float>::all(b)).v[0];   \
  }                                                                 \
  BRRR_SCALAR_FN double name(double a, double b) {                  \
    return name(Lanes<double>::all(a), Lanes<double>::all(b)).v[0]; \
  }
BRRR_INEXACT_FUNCTIONS2(BRRR_MATH2)
#undef BRRR_MATH2
#endif

#endif
