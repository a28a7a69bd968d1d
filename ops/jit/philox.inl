// Random numbers: Philox4x32-10, and uniform and normal draws from it. Like scalar.inl this source
// is compiled as C++ and as CUDA and includes nothing; it uses only arithmetic that rounds the same
// on both (+ - * / and sqrt, never contracted), so both devices give the same bits. The
// including file defines BRRR_SCALAR_FN and provides `sqrt`.
//
// A draw is a stream of 128-bit blocks. Block b of the draw at `place` in step `step` under `seed`
// is
//   Philox4x32-10 with key     (lo32(seed), hi32(seed))
//                 and counter  (lo32(b), hi32(b) ^ hi32(step) * 0x9E3779B9, lo32(step), place)
// so that blocks are distinct for any steps and lengths below 2^32 blocks, and in practice beyond.
//
// uniform, in [0, 1): element i of f32, f16 and bf16 takes word i % 4 of block i / 4 and keeps its
// top 24, 11 or 8
//   bits; element i of f64 takes the words (0, 1) or (2, 3), by i % 2, of block i / 2 and keeps 53
//   bits.
// bernoulli, true with a probability of threshold / 65536: element i takes half-word i % 8 of block
//   i / 8, the low half of each word first, and is true below the threshold.
// normal, by Box-Muller: a pair of elements takes two words, or for f64 two pairs of words; the
// even element is
//   the cosine, the odd one the sine. f16 and bf16 are the f32 draw, rounded.

struct brrr_block {
  unsigned int w[4];
};

// The 64 bits of a product. In PTX, since NVVM would keep halves in 64-bit registers, and kernels
// of rows that also draw would need more registers.
struct brrr_words {
  unsigned int low, high;
};
BRRR_SCALAR_FN brrr_words brrr_product(unsigned int a, unsigned int b) {
#ifdef __CUDA_ARCH__
  brrr_words words;
  asm("{ .reg .b64 all; mul.wide.u32 all, %2, %3; mov.b64 {%0, %1}, all; }"
      : "=r"(words.low), "=r"(words.high)
      : "r"(a), "r"(b));
  return words;
#else
  const unsigned long long all = (unsigned long long)a * b;
  return {(unsigned int)all, (unsigned int)(all >> 32)};
#endif
}

BRRR_SCALAR_FN brrr_block brrr_philox(unsigned int c0, unsigned int c1, unsigned int c2,
                                      unsigned int c3, unsigned int k0, unsigned int k1) {
  for (int round = 0; round < 10; ++round) {
    const brrr_words p0 = brrr_product(0xD2511F53u, c0), p1 = brrr_product(0xCD9E8D57u, c2);
    c0 = p1.high ^ c1 ^ k0;
    c1 = p1.low;
    c2 = p0.high ^ c3 ^ k1;
    c3 = p0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

BRRR_SCALAR_FN brrr_block brrr_random_block(unsigned long long seed, unsigned long long step,
                                            unsigned int place, unsigned long long block) {
  return brrr_philox((unsigned int)block,
                     (unsigned int)(block >> 32) ^ (unsigned int)(step >> 32) * 0x9E3779B9u,
                     (unsigned int)step, place, (unsigned int)seed, (unsigned int)(seed >> 32));
}

// Words to uniform numbers. Each is a whole number of 2^-bits, so the conversion is exact.
BRRR_SCALAR_FN float brrr_uniform_24(unsigned int w) {
  return (float)(int)(w >> 8) * 5.9604644775390625e-8f;
}
BRRR_SCALAR_FN float brrr_uniform_11(unsigned int w) {
  return (float)(int)(w >> 21) * 4.8828125e-4f;
}
BRRR_SCALAR_FN float brrr_uniform_8(unsigned int w) { return (float)(int)(w >> 24) * 3.90625e-3f; }
BRRR_SCALAR_FN double brrr_uniform_53(unsigned int high, unsigned int low) {
  return (double)(int)(high >> 5) * 7.450580596923828125e-9 +
         (double)(int)(low >> 6) * 1.1102230246251565e-16;
}

// log of x in (0, 1], x not below 2^-64. Powers of two go exactly to the exponent; what is left, in
// [1/sqrt 2, sqrt 2], is 2 atanh(s), |s| < 0.172.
template <class T>
BRRR_SCALAR_FN T brrr_log_unit(T x) {
  T e = T(0);
  const T limits[6] = {T(1) / T(4294967296.0), T(1) / T(65536), T(1) / T(256),
                       T(1) / T(16),           T(1) / T(4),     T(1) / T(2)};
  const T scales[6] = {T(4294967296.0), T(65536), T(256), T(16), T(4), T(2)};
  const T steps[6] = {T(32), T(16), T(8), T(4), T(2), T(1)};
  for (int i = 0; i < 6; ++i) {
    const bool small = x < limits[i];
    x = small ? x * scales[i] : x;
    e = small ? e + steps[i] : e;
  }
  // Now x is in [1/2, 1].
  const bool low = x < T(0.70710678118654752440);
  x = low ? x * T(2) : x;
  e = low ? e + T(1) : e;
  const T s = (x - T(1)) / (x + T(1));
  const T z = s * s;
  T p;
  if constexpr (sizeof(T) == 4) {
    p = ((T(1) / T(9) * z + T(1) / T(7)) * z + T(1) / T(5)) * z + T(1) / T(3);
  } else {
    p = T(1) / T(21);
    p = p * z + T(1) / T(19);
    p = p * z + T(1) / T(17);
    p = p * z + T(1) / T(15);
    p = p * z + T(1) / T(13);
    p = p * z + T(1) / T(11);
    p = p * z + T(1) / T(9);
    p = p * z + T(1) / T(7);
    p = p * z + T(1) / T(5);
    p = p * z + T(1) / T(3);
  }
  return (s * T(2) + s * T(2) * z * p) - e * T(0.69314718055994530942);
}

// cos and sin of 2 pi u, u in [0, 1]. The quarter turn nearest to u is subtracted exactly;
// Taylor polynomials of the rest follow, at most an eighth of a turn.
template <class T>
BRRR_SCALAR_FN void brrr_cos_sin_turns(T u, T& cosine, T& sine) {
  const T quarters = u * T(4);
  const int quadrant = (int)(quarters + T(0.5));
  const T x = (quarters - (T)quadrant) * T(1.57079632679489661923);
  const T z = x * x;
  T s, c;
  if constexpr (sizeof(T) == 4) {
    s = ((T(2.7557319223985893e-6) * z - T(1.9841269841269841e-4)) * z + T(8.3333333333333333e-3)) *
            z -
        T(1.6666666666666667e-1);
    c = ((T(2.4801587301587302e-5) * z - T(1.3888888888888889e-3)) * z + T(4.1666666666666667e-2)) *
            z -
        T(0.5);
  } else {
    s = T(2.8114572543455206e-15);
    s = s * z - T(7.6471637318198165e-13);
    s = s * z + T(1.6059043836821613e-10);
    s = s * z - T(2.5052108385441719e-8);
    s = s * z + T(2.7557319223985893e-6);
    s = s * z - T(1.9841269841269841e-4);
    s = s * z + T(8.3333333333333333e-3);
    s = s * z - T(1.6666666666666667e-1);
    c = T(4.7794773323873853e-14);
    c = c * z - T(1.1470745597729725e-11);
    c = c * z + T(2.0876756987868099e-9);
    c = c * z - T(2.7557319223985893e-7);
    c = c * z + T(2.4801587301587302e-5);
    c = c * z - T(1.3888888888888889e-3);
    c = c * z + T(4.1666666666666667e-2);
    c = c * z - T(0.5);
  }
  s = x + x * z * s;
  c = T(1) + z * c;
  const bool swapped = quadrant & 1;
  const T c1 = swapped ? s : c, s1 = swapped ? c : s;
  cosine = ((quadrant + 1) & 2) ? -c1 : c1;
  sine = (quadrant & 2) ? -s1 : s1;
}

// A pair of independent normal numbers. `radius` is uniform in (0, 1], `turn` in [0, 1].
template <class T>
BRRR_SCALAR_FN void brrr_box_muller(T radius, T turn, T& first, T& second) {
  const T r = sqrt(T(-2) * brrr_log_unit(radius));
  T c, s;
  brrr_cos_sin_turns(turn, c, s);
  first = r * c;
  second = r * s;
}

// The radius of an f32 pair uses all 32 bits, so that tails reach 6.7 deviations.
BRRR_SCALAR_FN void brrr_normal_pair_f32(unsigned int a, unsigned int b, float& first,
                                         float& second) {
  const float radius = (float)a * 2.3283064365386963e-10f + 1.1641532182693481e-10f;
  brrr_box_muller(radius, brrr_uniform_24(b), first, second);
}
BRRR_SCALAR_FN void brrr_normal_pair_f64(const brrr_block& block, double& first, double& second) {
  const double radius = brrr_uniform_53(block.w[0], block.w[1]) + 1.1102230246251565e-16;
  brrr_box_muller(radius, brrr_uniform_53(block.w[2], block.w[3]), first, second);
}

// Four elements at a time, two for f64: elements 4 * block to 4 * block + 3 of the draw.
BRRR_SCALAR_FN void brrr_uniform_block_f32(unsigned long long seed, unsigned long long step,
                                           unsigned int place, unsigned long long block,
                                           float out[4]) {
  const brrr_block b = brrr_random_block(seed, step, place, block);
  for (int i = 0; i < 4; ++i) out[i] = brrr_uniform_24(b.w[i]);
}
BRRR_SCALAR_FN void brrr_uniform_block_f16(unsigned long long seed, unsigned long long step,
                                           unsigned int place, unsigned long long block,
                                           float out[4]) {
  const brrr_block b = brrr_random_block(seed, step, place, block);
  for (int i = 0; i < 4; ++i) out[i] = brrr_uniform_11(b.w[i]);
}
BRRR_SCALAR_FN void brrr_uniform_block_bf16(unsigned long long seed, unsigned long long step,
                                            unsigned int place, unsigned long long block,
                                            float out[4]) {
  const brrr_block b = brrr_random_block(seed, step, place, block);
  for (int i = 0; i < 4; ++i) out[i] = brrr_uniform_8(b.w[i]);
}
BRRR_SCALAR_FN void brrr_uniform_block_f64(unsigned long long seed, unsigned long long step,
                                           unsigned int place, unsigned long long block,
                                           double out[2]) {
  const brrr_block b = brrr_random_block(seed, step, place, block);
  out[0] = brrr_uniform_53(b.w[0], b.w[1]);
  out[1] = brrr_uniform_53(b.w[2], b.w[3]);
}
BRRR_SCALAR_FN void brrr_normal_block_f32(unsigned long long seed, unsigned long long step,
                                          unsigned int place, unsigned long long block,
                                          float out[4]) {
  const brrr_block b = brrr_random_block(seed, step, place, block);
  brrr_normal_pair_f32(b.w[0], b.w[1], out[0], out[1]);
  brrr_normal_pair_f32(b.w[2], b.w[3], out[2], out[3]);
}
BRRR_SCALAR_FN void brrr_normal_block_f64(unsigned long long seed, unsigned long long step,
                                          unsigned int place, unsigned long long block,
                                          double out[2]) {
  brrr_normal_pair_f64(brrr_random_block(seed, step, place, block), out[0], out[1]);
}

// Eight elements: 8 * block to 8 * block + 7 of the draw.
template <class T>
BRRR_SCALAR_FN void brrr_bernoulli_block(unsigned long long seed, unsigned long long step,
                                         unsigned int place, unsigned long long block,
                                         unsigned int threshold, T out[8]) {
  const brrr_block b = brrr_random_block(seed, step, place, block);
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = (b.w[i] & 0xffffu) < threshold;
    out[2 * i + 1] = (b.w[i] >> 16) < threshold;
  }
}

// Word k of a block: chosen and not indexed, so that a block stays in registers.
BRRR_SCALAR_FN unsigned int brrr_word(const brrr_block& b, unsigned long long k) {
  const unsigned int low = (k & 1) ? b.w[1] : b.w[0], high = (k & 1) ? b.w[3] : b.w[2];
  return (k & 2) ? high : low;
}

// Element `index` of a draw, of the block that has it: index / 4, of f64 index / 2, of bernoulli
// index / 8.
BRRR_SCALAR_FN float brrr_uniform_f32(const brrr_block& b, unsigned long long index) {
  return brrr_uniform_24(brrr_word(b, index));
}
BRRR_SCALAR_FN float brrr_uniform_f16(const brrr_block& b, unsigned long long index) {
  return brrr_uniform_11(brrr_word(b, index));
}
BRRR_SCALAR_FN float brrr_uniform_bf16(const brrr_block& b, unsigned long long index) {
  return brrr_uniform_8(brrr_word(b, index));
}
BRRR_SCALAR_FN double brrr_uniform_f64(const brrr_block& b, unsigned long long index) {
  return brrr_uniform_53(brrr_word(b, index << 1), brrr_word(b, (index << 1) + 1));
}
BRRR_SCALAR_FN bool brrr_bernoulli(const brrr_block& b, unsigned long long index,
                                   unsigned int threshold) {
  const unsigned int word = brrr_word(b, index >> 1);
  return ((index & 1) ? word >> 16 : word & 0xffffu) < threshold;
}
BRRR_SCALAR_FN float brrr_normal_f32(const brrr_block& b, unsigned long long index) {
  float first, second;
  brrr_normal_pair_f32(brrr_word(b, index & 2), brrr_word(b, (index & 2) + 1), first, second);
  return (index & 1) ? second : first;
}
BRRR_SCALAR_FN double brrr_normal_f64(const brrr_block& b, unsigned long long index) {
  double first, second;
  brrr_normal_pair_f64(b, first, second);
  return (index & 1) ? second : first;
}

// Block `number` of a draw. `state` is {seed, step, base}, the draw's place in the step counted
// from base.
BRRR_SCALAR_FN brrr_block brrr_block_of_draw(const long long* state, long long place,
                                             unsigned long long number) {
  return brrr_random_block((unsigned long long)state[0], (unsigned long long)state[1],
                           (unsigned int)place + (unsigned int)state[2], number);
}

// The block of the element that was found last, N elements to a block, and the element's place in
// it. Neighbouring elements share blocks.
template <int N>
struct brrr_cached_block {
  brrr_block block;
  unsigned long long number = ~0ull, word = 0;

  BRRR_SCALAR_FN void find(const long long* state, long long place, unsigned long long index) {
    word = index;
    if (number == index / N) return;
    number = index / N;
    block = brrr_block_of_draw(state, place, number);
  }
};

// The same where elements are found one after another in runs of V, each a block or part of one:
// once the loop over them is unrolled, it is known which of them begin a run.
template <int N, int V = N>
struct brrr_next_block {
  brrr_block block;
  unsigned int word = 0, first = 0, of_run = V - 1;

  BRRR_SCALAR_FN void find(const long long* state, long long place, unsigned long long index) {
    of_run = (of_run + 1) % V;
    if (of_run == 0) {
      block = brrr_block_of_draw(state, place, index / N);
      if (V < N) first = (unsigned int)(index % N);
    }
    word = first + of_run;
  }
};
