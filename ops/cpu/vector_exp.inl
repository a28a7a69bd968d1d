// exp of eight floats of ordinary magnitude, as 2^n times a polynomial: the steps and the bits of
// libmvec's. It is inlined in eager's loops and in generated kernels, which call vector_math.cpp
// for vectors with other arguments.
#if BRRR_VECTOR_MATH

constexpr float kOrdinaryForExp = 0x1.5d589ep+6f;  // the largest magnitude
constexpr float kLeastForExp = -0x1.9fe368p+6f;    // 0 below
constexpr float kMostForExp = 0x1.62e42ep+6f;      // infinite above

#if defined(__AVX2__)

typedef float EightFloats __attribute__((vector_size(32)));
typedef int EightInts __attribute__((vector_size(32)));

BRRR_SCALAR_FN EightFloats multiply_add(EightFloats a, EightFloats b, EightFloats c) {
#if __has_builtin(__builtin_ia32_vfmaddps256)
  return __builtin_ia32_vfmaddps256(a, b, c);
#else
  return __builtin_elementwise_fma(a, b, c);
#endif
}

// Those that exp_of_ordinary computes: no NaN, and none whose result is close to overflow or
// underflow.
BRRR_SCALAR_FN EightInts are_ordinary_for_exp(EightFloats x) {
  return (EightFloats)((EightInts)x & 0x7fffffff) <= kOrdinaryForExp;
}
BRRR_SCALAR_FN bool all_of(EightInts mask) {
  return __builtin_ia32_movmskps256((EightFloats)mask) == 0xff;
}

BRRR_SCALAR_FN EightFloats exp_of_ordinary(EightFloats x) {
  const auto all = [](float value) { return value - EightFloats{}; };
  const EightFloats shift = all(0x1.8p23f), shifted = multiply_add(x, all(0x1.715476p+0f), shift);
  const EightFloats n = shifted - shift;
  const EightFloats r =
      multiply_add(n, all(-0x1.7f7d1cp-20f), multiply_add(n, all(-0x1.62e4p-1f), x));
  EightFloats sum = multiply_add(all(0x1.0fb3fcp-7f), r, all(0x1.570724p-5f));
  sum = multiply_add(sum, r, all(0x1.555958p-3f));
  sum = multiply_add(sum, r, all(0x1.fffe68p-2f));
  sum = multiply_add(sum, r, all(0x1.fffffcp-1f));
  sum = multiply_add(sum, r, all(1));
  return sum * (EightFloats)(((EightInts)shifted + 127) << 23);
}

#endif
#endif
