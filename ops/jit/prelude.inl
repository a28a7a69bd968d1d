// What every CUDA kernel starts with: names of types, the two 16-bit floats, vector accesses,
// division by invariants, shuffles. It includes nothing; dispatch/functions.def precedes it.
// Everything is in namespace brrr, so that the functions of scalar.inl hide CUDA's of the same
// names; the compiler of kernels closes the namespace.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#define BRRR_SCALAR_FN __device__ __forceinline__
#define BRRR_FN static __device__ __forceinline__
#define K(x) static_cast<T>(x)
#define BRRR_INFINITY __int_as_float(0x7f800000)

namespace brrr {

// What a kernel does before it writes memory, or reads what the previous kernel may write. Its
// blocks may be started while the last blocks of that one still run: from here on their writes are
// visible.
BRRR_FN void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets blocks of the next kernel start before this one ends, once all blocks of this one have
// called it. In every kernel some block calls it after its wait: the next kernel may count on
// everything before this one having ended.
BRRR_FN void start_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Does so where all blocks run at once. Of more, the blocks that run last would share
// multiprocessors with blocks of the next kernel. Threads are multiplied, since to divide them into
// blocks would take longer.
BRRR_FN void start_next_kernel_in_one_wave() {
  if (u64(gridDim.x) * gridDim.y * blockDim.x <= THREADS_AT_ONCE) start_next_kernel();
}

// An element as the second-level cache has it. A multiprocessor's first-level cache may hold what
// was there before, until the wait for the previous kernel.
template <class T>
BRRR_FN T load_before_wait(const T* from) {
  if constexpr (sizeof(T) == 8) {
    u64 bits;
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(bits) : "l"(from));
    return reinterpret_cast<const T&>(bits);
  } else if constexpr (sizeof(T) == 4) {
    u32 bits;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(bits) : "l"(from));
    return reinterpret_cast<const T&>(bits);
  } else if constexpr (sizeof(T) == 2) {
    unsigned short bits;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(bits) : "l"(from));
    return reinterpret_cast<const T&>(bits);
  } else {
    u32 bits;
    asm volatile("ld.global.cg.u8 %0, [%1];" : "=r"(bits) : "l"(from));
    return reinterpret_cast<const T&>(bits);
  }
}

#if __CUDA_ARCH__ >= 900
// A barrier of all threads of the cluster, with release and acquire of shared memory.
BRRR_FN void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}
// The variable `shared` of another block of the cluster (distributed shared memory).
template <class T>
BRRR_FN const T& in_block(const T& shared, u32 block) {
  const T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(&shared), "r"(block));
  return *there;
}
#endif

// Which block of a grid runs the function of a generated kernel: here, the one that was launched.
struct LaunchedBlock {
  BRRR_SCALAR_FN u32 x() const { return blockIdx.x; }
  BRRR_SCALAR_FN u32 y() const { return blockIdx.y; }
  BRRR_SCALAR_FN u32 parts() const { return gridDim.y; }  // blocks that share a row
  BRRR_SCALAR_FN u32 blocks() const { return gridDim.x; }
};
// One of several grids in one launch, and a block of it.
struct PartOfGrid {
  u32 columns, rows, blocks;
};
struct BlockOfPart {
  u32 columns, rows, index;
  BRRR_SCALAR_FN u32 x() const { return index % columns; }
  BRRR_SCALAR_FN u32 y() const { return index / columns % rows; }
  BRRR_SCALAR_FN u32 z() const { return index / (columns * rows); }
};

// Templates, so that a function for float takes their place.
#define BRRR_MATH1(name, ...)       \
  template <class T>                \
  BRRR_FN T name(T a) {             \
    if constexpr (sizeof(T) == 4) { \
      return ::name##f(a);          \
    } else {                        \
      return ::name(a);             \
    }                               \
  }
BRRR_INEXACT_FUNCTIONS(BRRR_MATH1)
BRRR_EXACT_FUNCTIONS(BRRR_MATH1)
#undef BRRR_MATH1
#define BRRR_MATH2(name, ...)                                      \
  BRRR_FN float name(float a, float b) { return ::name##f(a, b); } \
  BRRR_FN double name(double a, double b) { return ::name(a, b); }
BRRR_INEXACT_FUNCTIONS2(BRRR_MATH2)
BRRR_EXACT_FUNCTIONS2(BRRR_MATH2)
#undef BRRR_MATH2
// Two instructions where a division that is rounded right takes ten.
BRRR_FN float over(float a, float b) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
}
BRRR_FN double over(double a, double b) { return a / b; }

#if __CUDA_ARCH__ >= 800
// As in scalar.inl (NaN propagates), in one instruction. -0 is less than +0.
BRRR_FN float maximum(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
BRRR_FN float minimum(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
#endif

// Correctly rounded a / b for many a and one b, from the reciprocal of b rounded to nearest
// (`inverse`) and as an unevaluated sum `down + rest`, where `down` is rounded towards zero.
//
// `first` is within half an ulp of the quotient, plus 2^-22 ulp; its remainder is exact in an fma.
// The correction by the remainder rounds correctly (Markstein): the quotient of two floats is at
// least 2^-24 / m ulp from the midpoint of two floats, where m in [1, 2) is the significand of b,
// and the rounding error of `inverse` moves the corrected quotient by at most 2^-26 m ulp (for the
// four largest m, where the bounds meet, all numerators were tried).
//
// This needs every intermediate to be a normal number. The guard accumulates the extremes of what
// it sees over a vector, and fails if |a| is outside of [2^-80, 2^100] or |b| outside of [2^-24,
// 2^24]. a = 0 passes if b is positive: no intermediate then changes the sign of the zero.
//
// The fast forms of sin and cos need angles of at most kMostAngle.
constexpr float kMostAngle = 65536.0f;
struct Guard {
  float angle = 0.0f;  // the largest
  float largest = 0.0f;
  // The least magnitude, as bits shifted left over the sign. Less one, zero wraps to the largest.
  u32 least = 0xffffffffu;
  bool extreme = false;  // a divisor is out of range
  // Of quotients for bf16: the least position of their low 16 bits, counted from two units before
  // the midpoint of two numbers of bf16. 0 to 4: within two units of it.
  u32 above = 0xffffu;

  BRRR_SCALAR_FN void see(float a, float b) {
    largest = fmaxf(largest, fabsf(a));
    const u32 size = 2 * __float_as_uint(a) - (b > 0.0f), fewest = size < least ? size : least;
    least = fewest;
    extreme = extreme | !((fabsf(b) >= 0x1p-24f) & (fabsf(b) <= 0x1p24f));
  }
  BRRR_SCALAR_FN void see_quotient(float quotient, float b) {
    const u32 here = (__float_as_uint(quotient) - 0x7ffeu) & 0xffffu;
    above = here < above ? here : above;
    extreme = extreme | !((fabsf(b) >= 0x1p-126f) & (fabsf(b) <= 0x1p126f));
  }
  BRRR_SCALAR_FN void see_angle(float a) { angle = fmaxf(angle, fabsf(a)); }
  BRRR_SCALAR_FN bool fails() const {
    return !(angle <= kMostAngle) | extreme | !(largest <= 0x1p100f) |
           (least < 2 * 0x17800000u - 1) |  // 2^-80
           (above <= 4);
  }
};
BRRR_FN float inverse_towards_zero(float b) { return __frcp_rz(b); }
BRRR_FN float rest_of_inverse(float b, float down, float inverse) {
  return __fmaf_rn(-b, down, 1.0f) * inverse;
}
BRRR_FN float divided(float a, float b, float inverse, float down, float rest, Guard& guard) {
  guard.see(a, b);
  const float first = __fmaf_rn(a, down, a * rest);
  return __fmaf_rn(__fmaf_rn(b, first, -a), -inverse, first);
}
// a / b for a result that is then rounded to bf16: a correctly rounded quotient and this product
// differ by at most two units in the last place, so they round to the same bf16 unless the midpoint
// of two is among them, or next to them. Underflow changes neither bound.
BRRR_FN float divided_for_bf16(float a, float b, float inverse, Guard& guard) {
  const float quotient = a * inverse;
  guard.see_quotient(quotient, b);
  return quotient;
}
// In place of a Guard when a vector is computed again.
struct Exact {};
BRRR_FN float divided_for_bf16(float a, float b, float, Exact&) { return a / b; }
BRRR_FN float divided(float a, float b, float, float, float, Exact&) { return a / b; }

// sin and cos of |a| <= kMostAngle, within 1.6 ulp: quarter turns, of which there are less than
// 2^16, are subtracted in three steps, the first two of them exact, and polynomials of the rest
// follow. In 20 instructions without a branch, where CUDA's have one for large angles.
template <bool COSINE>
BRRR_FN float of_angle(float a) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: has its integer in the low bits
  const float size = fabsf(a);           // sin(-0) is -0
  const float shifted = __fmaf_rn(size, 0x1.45f306p-1f, kRound), quarters = shifted - kRound;
  const u32 quadrant = __float_as_uint(shifted);
  float t = __fmaf_rn(quarters, -0x1.921fb4p+0f, size);
  t = __fmaf_rn(quarters, -0x1.4442d0p-24f, t);
  t = __fmaf_rn(quarters, -0x1.84698ap-48f, t);
  const float z = t * t;
  float s = __fmaf_rn(z, -1.9516976e-4f, 8.332176e-3f);
  s = __fmaf_rn(z, s, -1.6666655e-1f);
  s = __fmaf_rn(t * z, s, t);
  float c = __fmaf_rn(z, 2.4432784e-5f, -1.3887313e-3f);
  c = __fmaf_rn(z, c, 4.1666646e-2f);
  c = __fmaf_rn(z, c, -0.5f);
  c = __fmaf_rn(z, c, 1.0f);
  const bool odd = quadrant & 1;
  const u32 rotated = (COSINE ? quadrant + 1 : quadrant) << 30;
  const u32 sign = COSINE ? rotated : rotated ^ __float_as_uint(a);
  return __uint_as_float(__float_as_uint(odd != COSINE ? c : s) ^ (sign & 0x80000000u));
}
static __device__ __noinline__ float sine_of_large(float a) { return ::sinf(a); }
static __device__ __noinline__ float cosine_of_large(float a) { return ::cosf(a); }
BRRR_FN float sin(float a) { return fabsf(a) > kMostAngle ? sine_of_large(a) : of_angle<false>(a); }
BRRR_FN float cos(float a) {
  return fabsf(a) > kMostAngle ? cosine_of_large(a) : of_angle<true>(a);
}
BRRR_FN float sin(float a, Exact&) { return sin(a); }
BRRR_FN float cos(float a, Exact&) { return cos(a); }
BRRR_FN float sin(float a, Guard& guard) {
  guard.see_angle(a);
  return of_angle<false>(a);
}
BRRR_FN float cos(float a, Guard& guard) {
  guard.see_angle(a);
  return of_angle<true>(a);
}

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

// Values in registers: halves are float, everything else is itself. Bits agree with tensor/half.h.
template <class T>
struct register_type {
  typedef T type;
};
template <>
struct register_type<f16> {
  typedef float type;
};
template <>
struct register_type<bf16> {
  typedef float type;
};
template <class T>
using Register = typename register_type<T>::type;

template <class T>
BRRR_FN T widen(T a) {
  return a;
}
BRRR_FN float widen(bf16 a) { return __uint_as_float(u32(a.bits) << 16); }
BRRR_FN float widen(f16 a) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(a.bits));
  return result;
}

// Every NaN becomes the hardware's one. Keeping its bits would cost a branch a pair, and they are
// not to be relied on: the assembler itself turns `a <= 0 ? 0 : a` into a maximum that gives
// another NaN than a.
BRRR_FN u32 narrow_pair(bf16, float low, float high) {
  u32 result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
BRRR_FN u32 narrow_pair(f16, float low, float high) {
  u32 result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
// One of the two 16-bit floats in a word, in one instruction.
BRRR_FN float widen_half(bf16, u32 pair, bool high) {
  return __uint_as_float(high ? pair & 0xffff0000u : pair << 16);
}
BRRR_FN float widen_half(f16, u32 pair, bool high) {
  float results[2];
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
      : "=f"(results[0]), "=f"(results[1])
      : "r"(pair));
  return results[high];
}
template <class T, class V>
struct narrowing {
  static BRRR_SCALAR_FN T one(V a) { return static_cast<T>(a); }
};
// Conversions to integers saturate; NaN becomes 0, which the 64-bit ones need to be told.
template <>
struct narrowing<i64, float> {
  static BRRR_SCALAR_FN i64 one(float a) { return a == a ? __float2ll_rz(a) : 0; }
};
template <>
struct narrowing<i64, double> {
  static BRRR_SCALAR_FN i64 one(double a) { return a == a ? __double2ll_rz(a) : 0; }
};
template <>
struct narrowing<i32, float> {
  static BRRR_SCALAR_FN i32 one(float a) { return __float2int_rz(a); }
};
template <>
struct narrowing<i32, double> {
  static BRRR_SCALAR_FN i32 one(double a) { return a == a ? __double2int_rz(a) : 0; }
};
template <class T>
struct narrowing_half {
  static BRRR_SCALAR_FN T one(float a) { return T{u16(narrow_pair(T(), a, 0.0f))}; }
};
template <class V>
struct narrowing<f16, V> : narrowing_half<f16> {};
template <class V>
struct narrowing<bf16, V> : narrowing_half<bf16> {};
template <class T, class V>
BRRR_FN T narrow(V a) {
  return narrowing<T, V>::one(a);
}
// A value as a store to T and a load from there would leave it.
template <class T>
BRRR_FN Register<T> rounded(Register<T> a) {
  return widen(narrow<T>(a));
}

// N elements that are loaded and stored together, 16 bytes at a time where there are as many.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};
// The same by pairs of 16-bit floats. Extracting and inserting halves one by one takes an
// instruction more for every second element.
template <class H, int N>
union PackOfPairs {
  u32 pairs[N / 2];
  Pack<H, N> pack;
  BRRR_SCALAR_FN PackOfPairs() {}
  BRRR_SCALAR_FN PackOfPairs(const Pack<H, N>& from) : pack(from) {}
};
template <int N, class T>
BRRR_FN T widen(const Pack<T, N>& pack, int e) {
  return pack.at[e];
}
template <class H, int N>
BRRR_FN float widen_one_of(const Pack<H, N>& pack, int e) {
  if constexpr (N == 1) {
    return widen(pack.at[e]);
  } else {
    return widen_half(H(), PackOfPairs<H, N>(pack).pairs[e / 2], e % 2);
  }
}
template <int N>
BRRR_FN float widen(const Pack<f16, N>& pack, int e) {
  return widen_one_of(pack, e);
}
template <int N>
BRRR_FN float widen(const Pack<bf16, N>& pack, int e) {
  return widen_one_of(pack, e);
}
template <int BYTES>
struct Words {
  typedef uint4 type;
};
template <>
struct Words<8> {
  typedef uint2 type;
};
template <>
struct Words<4> {
  typedef u32 type;
};
template <>
struct Words<2> {
  typedef u16 type;
};
template <>
struct Words<1> {
  typedef u8 type;
};

template <int N, class T>
BRRR_FN Pack<T, N> load(const T* from) {
  constexpr int kBytes = sizeof(T) * N;
  typedef typename Words<(kBytes < 16 ? kBytes : 16)>::type Word;
  union Bits {
    Word words[(kBytes + 15) / 16];
    Pack<T, N> pack;
    BRRR_SCALAR_FN Bits() {}
  } bits;
#pragma unroll
  for (int i = 0; i < (kBytes + 15) / 16; ++i)
    bits.words[i] = reinterpret_cast<const Word*>(from)[i];
  return bits.pack;
}
template <int N, class T>
BRRR_FN void store(T* to, const Pack<T, N>& pack) {
  constexpr int kBytes = sizeof(T) * N;
  typedef typename Words<(kBytes < 16 ? kBytes : 16)>::type Word;
  union Bits {
    Word words[(kBytes + 15) / 16];
    Pack<T, N> pack;
    BRRR_SCALAR_FN Bits() {}
  } bits;
  bits.pack = pack;
#pragma unroll
  for (int i = 0; i < (kBytes + 15) / 16; ++i) reinterpret_cast<Word*>(to)[i] = bits.words[i];
}
// Whether a coordinate is within the bounds of an input; without them its elements are 0.
BRRR_FN bool within(i64 at, i64 low, i64 high) { return at >= low && at < high; }
// The same element N times.
// A pack that is loaded long before it is used, in whole words: the compiler would split it into
// elements right where it is loaded, and so wait there.
template <class T, int N, bool WORDS = sizeof(T) * N % 4 == 0>
struct Ahead {
  u32 words[sizeof(T) * N / 4];

  union Bits {
    Pack<T, N> pack;
    u32 words[sizeof(T) * N / 4];
    BRRR_SCALAR_FN Bits() {}
  };
  BRRR_SCALAR_FN void operator=(const Pack<T, N>& loaded) {
    Bits bits;
    bits.pack = loaded;
#pragma unroll
    for (int i = 0; i < int(sizeof(T) * N / 4); ++i) words[i] = bits.words[i];
  }
  BRRR_SCALAR_FN Pack<T, N> pack() const {
    Bits bits;
#pragma unroll
    for (int i = 0; i < int(sizeof(T) * N / 4); ++i) {
      bits.words[i] = words[i];
      asm volatile("" : "+r"(bits.words[i]));
    }
    return bits.pack;
  }
};
template <class T, int N>
struct Ahead<T, N, false> {
  Pack<T, N> loaded;

  BRRR_SCALAR_FN void operator=(const Pack<T, N>& pack) { loaded = pack; }
  BRRR_SCALAR_FN Pack<T, N> pack() const { return loaded; }
};

template <int N, class T>
BRRR_FN Pack<T, N> spread(const T* from) {
  Pack<T, N> pack;
  const T value = *from;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = value;
  return pack;
}
template <class T, int N>
BRRR_FN void narrow_all(const Register<T> (&values)[N], Pack<T, N>& pack) {
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = narrow<T>(values[i]);
}
template <class H, int N>
BRRR_FN void narrow_halves(const float (&values)[N], Pack<H, N>& pack) {
  if constexpr (N == 1) {
    pack.at[0] = narrow<H>(values[0]);
  } else {
    PackOfPairs<H, N> result;
#pragma unroll
    for (int i = 0; i < N; i += 2) result.pairs[i / 2] = narrow_pair(H(), values[i], values[i + 1]);
    pack = result.pack;
  }
}
template <int N>
BRRR_FN void narrow_all(const float (&values)[N], Pack<f16, N>& pack) {
  narrow_halves<f16>(values, pack);
}
template <int N>
BRRR_FN void narrow_all(const float (&values)[N], Pack<bf16, N>& pack) {
  narrow_halves<bf16>(values, pack);
}

// An iteration space of at most eight dimensions and the strides of N operands in it, as
// ops/jit/geometry.h fills it. `multiplier` and `shift` divide by `size` without dividing, for
// dividends below 2^31.
template <int N>
struct Geometry {
  i64 count;
  i64 size[8];
  u32 multiplier[8];
  u32 shift[8];
  i64 stride[N][8];
};

// The offset of element `linear` of the space in each operand. WIDE when counts or offsets pass
// 2^31.
template <int RANK, bool WIDE, int N>
BRRR_FN void locate(const Geometry<N>& space, i64 linear, i64 (&offset)[N]) {
  if constexpr (WIDE) {
#pragma unroll
    for (int k = 0; k < N; ++k) offset[k] = 0;
    u64 rest = linear;
#pragma unroll
    for (int d = RANK - 1; d > 0; --d) {
      const u64 quotient = rest / u64(space.size[d]);
      const i64 at = rest - quotient * u64(space.size[d]);
      rest = quotient;
#pragma unroll
      for (int k = 0; k < N; ++k) offset[k] += at * space.stride[k][d];
    }
#pragma unroll
    for (int k = 0; k < N; ++k) offset[k] += i64(rest) * space.stride[k][0];
  } else {
    i32 narrow_offset[N];
#pragma unroll
    for (int k = 0; k < N; ++k) narrow_offset[k] = 0;
    u32 rest = u32(linear);
#pragma unroll
    for (int d = RANK - 1; d > 0; --d) {
      const u32 quotient = (__umulhi(rest, space.multiplier[d]) + rest) >> space.shift[d];
      const i32 at = rest - quotient * u32(space.size[d]);
      rest = quotient;
#pragma unroll
      for (int k = 0; k < N; ++k) narrow_offset[k] += at * i32(space.stride[k][d]);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) offset[k] = narrow_offset[k] + i32(rest) * i32(space.stride[k][0]);
  }
}

// A value of another lane of `width` neighbouring ones: `by` lanes further, or that of number `by`.
template <bool DOWN, class T>
BRRR_FN T shuffle(T a, int by, int width) {
  return DOWN ? __shfl_down_sync(~0u, a, by, width) : __shfl_sync(~0u, a, by, width);
}
template <bool DOWN>
BRRR_FN bool shuffle(bool a, int by, int width) {
  return shuffle<DOWN>(i32(a), by, width) != 0;
}
