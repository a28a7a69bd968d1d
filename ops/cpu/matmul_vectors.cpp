// One source of a product (matmul_vectors.inl) for AVX2 and for AVX-512.
#include "brrr/ops/cpu/matmul_vectors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "brrr/ops/cpu/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace brrr::on_cpu {

using i64 = std::int64_t;

#if defined(__x86_64__)

namespace {

namespace avx2 {

#define BRRR_TARGET __attribute__((target("avx2,fma")))
#define BRRR_INLINE BRRR_TARGET inline __attribute__((always_inline))

using Vector = __m256;
constexpr i64 kWidth = 8, kRows = 6;
struct Mask {
  alignas(32) std::int32_t bits[kWidth];
  bool is_whole;
};

BRRR_INLINE Vector zeros() { return _mm256_setzero_ps(); }
BRRR_INLINE Vector load(const float* from) { return _mm256_loadu_ps(from); }
BRRR_INLINE void store(float* to, Vector a) { _mm256_storeu_ps(to, a); }
BRRR_INLINE Vector all(float a) { return _mm256_set1_ps(a); }
BRRR_INLINE Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
BRRR_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
BRRR_INLINE __m256i bits_of(const Mask& mask) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(mask.bits));
}
BRRR_INLINE Vector load_part(const Mask& mask, const float* from) {
  return _mm256_maskload_ps(from, bits_of(mask));
}
inline bool is_whole(const Mask& mask) { return mask.is_whole; }
BRRR_INLINE void store_part(const Mask& mask, float* to, Vector a) {
  _mm256_maskstore_ps(to, bits_of(mask), a);
}
inline Mask mask_of(i64 count) {
  Mask mask;
  for (int i = 0; i < kWidth; ++i) mask.bits[i] = i < count ? -1 : 0;
  mask.is_whole = count >= kWidth;
  return mask;
}

#include "brrr/ops/cpu/matmul_vectors.inl"

#undef BRRR_INLINE
#undef BRRR_TARGET

}  // namespace avx2

namespace avx512 {

#define BRRR_TARGET __attribute__((target("avx512f,avx2,fma")))
#define BRRR_INLINE BRRR_TARGET inline __attribute__((always_inline))

using Vector = __m512;
using Mask = __mmask16;
constexpr i64 kWidth = 16, kRows = 12;

BRRR_INLINE Vector zeros() { return _mm512_setzero_ps(); }
BRRR_INLINE Vector load(const float* from) { return _mm512_loadu_ps(from); }
BRRR_INLINE void store(float* to, Vector a) { _mm512_storeu_ps(to, a); }
BRRR_INLINE Vector all(float a) { return _mm512_set1_ps(a); }
BRRR_INLINE Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
BRRR_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
BRRR_INLINE Vector load_part(Mask mask, const float* from) {
  return _mm512_maskz_loadu_ps(mask, from);
}
inline bool is_whole(Mask mask) { return mask == 0xffff; }
BRRR_INLINE void store_part(Mask mask, float* to, Vector a) { _mm512_mask_storeu_ps(to, mask, a); }
inline Mask mask_of(i64 count) {
  return static_cast<Mask>((1u << std::clamp<i64>(count, 0, kWidth)) - 1);
}

#include "brrr/ops/cpu/matmul_vectors.inl"

#undef BRRR_INLINE
#undef BRRR_TARGET

}  // namespace avx512

}  // namespace

VectorIsa vector_isa() {
  static const VectorIsa isa = [] {
    const std::string_view asked = asked_isa();
    if (asked == "baseline") return VectorIsa::none;
    if (asked != "v3" && __builtin_cpu_supports("avx512f")) return VectorIsa::avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? VectorIsa::avx2
                                                                           : VectorIsa::none;
  }();
  return isa;
}

i64 tile_columns(VectorIsa isa) {
  return isa == VectorIsa::avx512 ? avx512::kColumns : avx2::kColumns;
}

void multiply_vectors(VectorIsa isa, i64 m, i64 n, i64 k, MatrixView a, MatrixView b, float* c,
                      i64 c_row, const float* bias) {
  (isa == VectorIsa::avx512 ? avx512::multiply : avx2::multiply)(m, n, k, a, b, c, c_row, bias);
}

#else

VectorIsa vector_isa() { return VectorIsa::none; }
i64 tile_columns(VectorIsa) { return 16; }
void multiply_vectors(VectorIsa, i64, i64, i64, MatrixView, MatrixView, float*, i64, const float*) {
}

#endif

}  // namespace brrr::on_cpu
