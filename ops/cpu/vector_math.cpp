// Vector forms of exp and log, built once for each level of the instruction set.
//
// libmvec's forms compute the lanes whose argument is out of a bound by scalar calls, one by one: a
// vector of saturated arguments takes 10 to 30 times as long as one of ordinary ones. The forms
// here have the same bits and take the same time for ordinary arguments: they look for a lane out
// of the bound and otherwise call libmvec. Where there is one, libmvec gets a harmless argument
// in its place, and the result of the lane is filled in: a limit, or NaN. What has no closed form
// is still computed by scalar calls, for those lanes alone: exp near overflow and underflow in f64,
// log of denormals. sin, cos, tan, tanh, log1p and pow are libmvec's as they are: of ordinary
// arguments those are slow for sines of more than 10,000 and powers of negative bases alone, which
// have no closed form.
//
// The bounds are those of glibc 2.36's libmvec.
#include <cmath>
#include <cstdint>
#include <limits>

#include "brrr/ops/cpu/vector_math.h"

#if BRRR_VECTOR_MATH
#include <immintrin.h>

namespace brrr::on_cpu {
namespace {

#if defined(__AVX2__)
#define BRRR_F32(name) _ZGVdN8v_##name
#define BRRR_F64(name) _ZGVdN4v_##name
constexpr int kBytes = 32;
#else
#define BRRR_F32(name) _ZGVbN4v_##name
#define BRRR_F64(name) _ZGVbN2v_##name
constexpr int kBytes = 16;
#endif

#define BRRR_SCALAR_FN inline __attribute__((always_inline))
#include "brrr/ops/cpu/vector_exp.inl"

using Floats [[gnu::vector_size(kBytes)]] = float;
using Doubles [[gnu::vector_size(kBytes)]] = double;
using Ints [[gnu::vector_size(kBytes)]] = std::int32_t;
using Longs [[gnu::vector_size(kBytes)]] = std::int64_t;

template <class T>
struct Form {
  using Vector = Floats;
  using Mask = Ints;
};
template <>
struct Form<double> {
  using Vector = Doubles;
  using Mask = Longs;
};
template <class T>
using VectorOf = typename Form<T>::Vector;
template <class T>
using MaskOf = typename Form<T>::Mask;

// A bit for each byte of a mask.
template <class Mask>
unsigned bits_of(Mask mask) {
#if defined(__AVX2__)
  return static_cast<unsigned>(_mm256_movemask_epi8((__m256i)mask));
#else
  return static_cast<unsigned>(_mm_movemask_epi8((__m128i)mask));
#endif
}
constexpr unsigned kAllBytes = static_cast<unsigned>((1ull << kBytes) - 1);

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kMost = std::numeric_limits<T>::max();
template <class T>
constexpr T kInvalid = -std::numeric_limits<T>::quiet_NaN();  // as x86 makes them

template <class T>
VectorOf<T> all(T value) {
  return VectorOf<T>{} + value;
}
inline Floats magnitude(Floats a) { return (Floats)((Ints)a & 0x7fffffff); }
inline Doubles magnitude(Doubles a) { return (Doubles)((Longs)a & 0x7fffffffffffffff); }
template <class T, T (*function)(T), class V, class Mask>
V scalar_where(Mask mask, V a, V otherwise) {
  if (bits_of(mask) != 0) {
    for (std::size_t i = 0; i < sizeof(V) / sizeof(T); ++i) {
      if (mask[i]) otherwise[i] = function(a[i]);
    }
  }
  return otherwise;
}

#if defined(__AVX2__)

// Four results of expf, by the steps that libm's takes: 2^(k / 32) from a table, times a
// polynomial.
inline __m128 exp_by_table(__m128 a) {
  // 2^(i / 32) less i / 32 in its exponent, so that k counts on in the bits.
  alignas(64) static constexpr long long kTable[32] = {
      0x3ff0000000000000, 0x3fefd9b0d3158574, 0x3fefb5586cf9890f, 0x3fef9301d0125b51,
      0x3fef72b83c7d517b, 0x3fef54873168b9aa, 0x3fef387a6e756238, 0x3fef1e9df51fdee1,
      0x3fef06fe0a31b715, 0x3feef1a7373aa9cb, 0x3feedea64c123422, 0x3feece086061892d,
      0x3feebfdad5362a27, 0x3feeb42b569d4f82, 0x3feeab07dd485429, 0x3feea47eb03a5585,
      0x3feea09e667f3bcd, 0x3fee9f75e8ec5f74, 0x3feea11473eb0187, 0x3feea589994cce13,
      0x3feeace5422aa0db, 0x3feeb737b0cdc5e5, 0x3feec49182a3f090, 0x3feed503b23e255d,
      0x3feee89f995ad3ad, 0x3feeff76f2fb5e47, 0x3fef199bdd85529c, 0x3fef3720dcef9069,
      0x3fef5818dcfba487, 0x3fef7c97337b9b5f, 0x3fefa4afa2a490da, 0x3fefd0765b6e4540};
  constexpr double n = 32;
  const __m256d x = _mm256_cvtps_pd(a), scale = _mm256_set1_pd(0x1.71547652b82fep+0 * n),
                shift = _mm256_set1_pd(0x1.8p52);
  const __m256d shifted = _mm256_fmadd_pd(scale, x, shift);
  const __m256i k = _mm256_castpd_si256(shifted);
  const __m256d r = _mm256_fmsub_pd(scale, x, _mm256_sub_pd(shifted, shift));
  const __m256i entry =
      _mm256_i64gather_epi64(kTable, _mm256_and_si256(k, _mm256_set1_epi64x(31)), 8);
  const __m256d power = _mm256_castsi256_pd(_mm256_add_epi64(entry, _mm256_slli_epi64(k, 52 - 5)));
  const __m256d c0 = _mm256_set1_pd(0x1.c6af84b912394p-5 / n / n / n),
                c1 = _mm256_set1_pd(0x1.ebfce50fac4f3p-3 / n / n),
                c2 = _mm256_set1_pd(0x1.62e42ff0c52d6p-1 / n);
  const __m256d z = _mm256_fmadd_pd(c0, r, c1), linear = _mm256_fmadd_pd(c2, r, _mm256_set1_pd(1));
  return _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_fmadd_pd(z, _mm256_mul_pd(r, r), linear), power));
}

Floats exp_where(Ints mask, Floats a, Floats otherwise) {
  if (bits_of(mask) == 0) return otherwise;
  const __m256 x = (__m256)a;
  const __m256 results = _mm256_set_m128(exp_by_table(_mm256_extractf128_ps(x, 1)),
                                         exp_by_table(_mm256_castps256_ps128(x)));
  return mask ? (Floats)results : otherwise;
}

#else

// Whether libm's expf has fused products depends on the machine.
Floats exp_where(Ints mask, Floats a, Floats otherwise) {
  return scalar_where<float, expf>(mask, a, otherwise);
}

#endif
Doubles exp_where(Longs mask, Doubles a, Doubles otherwise) {
  return scalar_where<double, exp>(mask, a, otherwise);
}

// For each function the arguments that libmvec computes as vectors, and the results for others but
// NaN.
template <class T, T (*)(T)>
struct Exp {
  using V = VectorOf<T>;
  static constexpr bool single = sizeof(T) == 4;
  static constexpr T high = single ? T(kMostForExp) : T(0x1.62e42fefa39efp+9);   // then infinite
  static constexpr T low = single ? T(kLeastForExp) : T(-0x1.74910d52d3051p+9);  // then 0
  static constexpr T bound = single ? T(kOrdinaryForExp) : T(0x1.6232affffffffp+9);
  static MaskOf<T> inside(V a) { return magnitude(a) <= bound; }
  static V outside(V a, MaskOf<T> mask) {
    return exp_where(mask & (a >= low) & (a <= high), a, a > 0 ? all(kInfinity<T>) : V{});
  }
};
template <class T, T (*scalar)(T)>
struct Expm1 {
  using V = VectorOf<T>;
  static constexpr T bound = sizeof(T) == 4 ? T(0x1.5a92d6p+6) : T(0x1.61da04cbafe43p+9);
  static MaskOf<T> inside(V a) { return magnitude(a) <= bound; }
  static V outside(V a, MaskOf<T> mask) {
    const V limit = a > 0 ? all(kInfinity<T>) : all(T(-1));
    return scalar_where<T, scalar>(mask & (a > 0) & (a <= Exp<T, scalar>::high), a, limit);
  }
};
template <class T, T (*scalar)(T)>
struct Log {
  using V = VectorOf<T>;
  // Positive, normal and finite, by one comparison: the bits less those of the smallest normal
  // number, with the sign flipped.
  static MaskOf<T> inside(V a) {
    using Bits = MaskOf<T>;
    constexpr auto shift = sizeof(T) == 4 ? 0x7f800000 : 0x7ff0000000000000,
                   end = sizeof(T) == 4 ? -0x01000000 : -0x0020000000000000;
    return (Bits)a + (Bits{} + shift) < Bits{} + end;
  }
  static V outside(V a, MaskOf<T> mask) {
    const V limit = a > 0 ? all(kInfinity<T>) : a == 0 ? all(-kInfinity<T>) : all(kInvalid<T>);
    return scalar_where<T, scalar>(mask & (a > 0) & (a <= kMost<T>), a, limit);
  }
};
// A NaN stays, quiet.
template <class F, class V, class Vector>
BRRR_SCALAR_FN V lane_by_lane(V a, Vector vector) {
  const auto inside = F::inside(a);
  const V others = a != a ? a + a : F::outside(a, ~inside);
  if (bits_of(inside) == 0) return others;
  const V computed = vector(inside ? a : V{} + 0.5f);
  return inside ? computed : others;
}
template <class F, class V>
[[gnu::noinline, gnu::cold]] V beyond(V a, V (*vector)(V)) {
  return lane_by_lane<F>(a, vector);
}
template <class F, class V>
V everywhere(V a, V (*vector)(V)) {
  return bits_of(F::inside(a)) == kAllBytes ? vector(a) : beyond<F>(a, vector);
}

}  // namespace

// Spares a call of libmvec the jump through the procedure linkage table.
#if defined(__clang__)
#define BRRR_NO_PLT
#else
#define BRRR_NO_PLT [[gnu::noplt]]
#endif
#define BRRR_FORM_F32(name, Function)                                  \
  extern "C" BRRR_NO_PLT Floats BRRR_F32(name##f)(Floats);             \
  extern "C" Floats BRRR_F32(brrr_##name##f)(Floats a) {               \
    return everywhere<Function<float, name##f>>(a, BRRR_F32(name##f)); \
  }
#define BRRR_FORM_F64(name, Function)                             \
  extern "C" BRRR_NO_PLT Doubles BRRR_F64(name)(Doubles);         \
  extern "C" Doubles BRRR_F64(brrr_##name)(Doubles a) {           \
    return everywhere<Function<double, name>>(a, BRRR_F64(name)); \
  }

#if defined(__AVX2__)
// Loops compute vectors of ordinary arguments inline, and those with limits among the results.
extern "C" Floats BRRR_F32(brrr_expf)(Floats a) {
  return lane_by_lane<Exp<float, expf>>(a, exp_of_ordinary);
}
#else
BRRR_FORM_F32(exp, Exp)
#endif
BRRR_FORM_F64(exp, Exp)
BRRR_FORM_F32(expm1, Expm1)
BRRR_FORM_F64(expm1, Expm1)
BRRR_FORM_F32(log, Log)
BRRR_FORM_F64(log, Log)

}  // namespace brrr::on_cpu
#endif
