// Small matrix products on tensor cores. A block computes 16 x 16 results, one per thread; its
// warps split the summed dimension, and their sums are joined in the order of the warps. Operands
// are loaded from memory directly into the registers that mma reads, all loads of a warp at once,
// since memory latency dominates the time of such a product. Expects Element, and Bits of its size;
// MULTIPLY, the instruction; kRounds, whether that takes TF32; kAhead, the chunks that a warp loads
// at once; kLayoutA and kLayoutB, the OperandLayout of each; and SmallFactors. The entry that
// includes it stores results.

constexpr int kTile = 16;
constexpr int kPerWord = 4 / sizeof(Bits);
constexpr int kWords = 4;                      // of a line, in a lane
constexpr int kChunk = 4 * kWords * kPerWord;  // of the summed dimension, in a warp
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
static_assert(kThreads == kTile * kTile, "one thread a result");

// Loads N adjacent words, or zeros. Bypasses the L1 cache: blocks share few lines, and if a factor
// is loaded before the wait for the previous kernel, the L1 may hold stale data.
template <int N>
BRRR_FN void take(u32* to, const Bits* from, bool inside) {
  if constexpr (N == 4) {
    asm volatile(
        "{ .reg .pred inside; setp.ne.u32 inside, %5, 0; mov.u32 %0, 0; mov.u32 %1, 0; "
        "mov.u32 %2, 0; mov.u32 %3, 0; @inside ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
        : "l"(from), "r"(u32(inside)));
  } else if constexpr (N == 2) {
    asm volatile(
        "{ .reg .pred inside; setp.ne.u32 inside, %3, 0; mov.u32 %0, 0; mov.u32 %1, 0; "
        "@inside ld.global.cg.v2.u32 {%0, %1}, [%2]; }"
        : "=&r"(to[0]), "=&r"(to[1])
        : "l"(from), "r"(u32(inside)));
  } else {
    asm volatile(
        "{ .reg .pred inside; setp.ne.u32 inside, %2, 0; mov.u32 %0, 0; "
        "@inside ld.global.cg.u32 %0, [%1]; }"
        : "=&r"(to[0])
        : "l"(from), "r"(u32(inside)));
  }
}

// A warp's part of one operand. A line is a row of a or a column of b; `line` and `step` are the
// strides from one line to the next and along it. Lane 4 g + t has words 4 t to 4 t + 3 of two
// lines. The instruction expects words t and t + 4 of eight, but since it sums over them, any order
// will do that both operands share; and lines may be permuted if the results are permuted back.
template <OperandLayout LAYOUT>
struct Fragment {
  u32 raw[2 * kWords];

  static BRRR_SCALAR_FN int line_of(int set, int group) {
    return LAYOUT == mn_contiguous ? group * 2 + set : set * 8 + group;
  }

  BRRR_SCALAR_FN void read(const Bits* from, i64 line, i64 step, int line0, int lines, int k0,
                           int depth) {
    const int first = line0 + line_of(0, threadIdx.x % 32 / 4);
    const int k = k0 + threadIdx.x % 4 * kWords * kPerWord;
    if constexpr (LAYOUT == k_contiguous) {
#pragma unroll
      for (int set = 0; set < 2; ++set) {
        const Bits* at = from + (u32(first + set * 8) * u32(line) + u32(k));
        take<kWords>(raw + set * kWords, at, first + set * 8 < lines && k < depth);
      }
    } else if constexpr (LAYOUT == mn_contiguous) {
      constexpr int kBoth = 2 / kPerWord;
#pragma unroll
      for (int i = 0; i < kWords * kPerWord; ++i) {
        const Bits* at = from + (u32(k + i) * u32(step) + u32(first));
        take<kBoth>(raw + i * kBoth, at, k + i < depth && first < lines);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2 * kWords * kPerWord; ++i) {
        const int at = first + i / (kWords * kPerWord) * 8, deep = k + i % (kWords * kPerWord);
        const u32 one = at < lines && deep < depth ? from[at * line + deep * step] : 0;
        raw[i / kPerWord] = i % kPerWord ? raw[i / kPerWord] | one << 16 : one;
      }
    }
  }

  BRRR_SCALAR_FN u32 word(int set, int i) const {
    if constexpr (LAYOUT != mn_contiguous) return factor(raw[set * kWords + i]);
    if constexpr (kPerWord == 1) return factor(raw[i * 2 + set]);
    return __byte_perm(raw[i * 2], raw[i * 2 + 1], set ? 0x7632 : 0x5410);
  }

  // Element i of this lane in its line of a set, counted along the summed dimension.
  BRRR_SCALAR_FN Register<Element> element(int set, int i) const {
    if constexpr (kPerWord == 1)
      return __uint_as_float(raw[LAYOUT == mn_contiguous ? i * 2 + set : set * kWords + i]);
    const u32 word = raw[LAYOUT == mn_contiguous ? i : set * kWords + i / 2];
    const Bits bits = Bits(word >> ((LAYOUT == mn_contiguous ? set : i % 2) * 16));
    return widen(reinterpret_cast<const Element&>(bits));
  }

  static BRRR_SCALAR_FN u32 factor(u32 word) {
    if constexpr (kRounds) {
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
    }
    return word;
  }
};

typedef Fragment<kLayoutA> FragmentA;
typedef Fragment<kLayoutB> FragmentB;

BRRR_FN void multiply(const FragmentA& a, const FragmentB& b, float (&sums)[2][4]) {
#pragma unroll
  for (int i = 0; i < kWords; i += 2) {
    const u32 rows[] = {a.word(0, i), a.word(1, i), a.word(0, i + 1), a.word(1, i + 1)};
#pragma unroll
    for (int set = 0; set < 2; ++set) {
      float(&sum)[4] = sums[set];
      asm("mma.sync.aligned." MULTIPLY
          " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
          : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(b.word(set, i)),
            "r"(b.word(set, i + 1)));
    }
  }
}

// One block's part of a product: load, then sum.
struct SmallTile {
  const Bits* a;  // the matrices of this block
  const Bits* b;
  int row0, col0;
  FragmentA part_a[kAhead];
  FragmentB part_b[kAhead];

  template <bool A, bool B>
  BRRR_SCALAR_FN void load(const SmallFactors& p, int k) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int from = k + i * kWarps * kChunk;
      if (A) part_a[i].read(a, p.a_row, p.a_col, row0, p.m, from, p.k);
      if (B) part_b[i].read(b, p.b_col, p.b_row, col0, p.n, from, p.k);
    }
  }

  // Where this warp begins.
  static BRRR_SCALAR_FN int first() { return threadIdx.x / 32 * kChunk; }
  // Its first loads: of both factors, or of one.
  BRRR_SCALAR_FN void load(const SmallFactors& p) { load<true, true>(p, first()); }
  BRRR_SCALAR_FN void load_a(const SmallFactors& p) { load<true, false>(p, first()); }
  BRRR_SCALAR_FN void load_b(const SmallFactors& p) { load<false, true>(p, first()); }

  // The sum of this thread's result. `visit` is called with every pair of fragments and where they
  // begin in the summed dimension.
  template <class Visit>
  BRRR_SCALAR_FN float sum(const SmallFactors& p, float (&parts)[kWarps][kTile][kTile + 8],
                           Visit visit) {
    const int warp = threadIdx.x / 32;
    float sums[2][4] = {};
    int k = first();
#pragma unroll 1
    while (k < p.k) {
      __syncwarp();  // keeps the assembler from moving loads behind the first products
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        visit(part_a[i], part_b[i], k + i * kWarps * kChunk);
        multiply(part_a[i], part_b[i], sums);
      }
      k += kWarps * kChunk * kAhead;
      if (k >= p.k) break;
      load<true, true>(p, k);
    }
    const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    if (warp * kChunk < p.k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        parts[warp][FragmentA::line_of(i / 2 % 2, group)][FragmentB::line_of(i / 4, pair + i % 2)] =
            sums[i / 4][i % 4];
      }
    }
    __syncthreads();
    const int row = threadIdx.x / kTile, col = threadIdx.x % kTile;
    float sum = parts[0][row][col];
#pragma unroll
    for (int other = 1; other < kWarps; ++other) {
      if (other * kChunk < p.k) sum += parts[other][row][col];
    }
    return sum;
  }
};

// Calls visit(set, element) for what this lane has of a fragment that begins at k.
template <class Fragment, class Visit>
BRRR_FN void each_element(const Fragment& fragment, int k, int depth, Visit visit) {
  const int first = k + threadIdx.x % 4 * kWords * kPerWord;
#pragma unroll
  for (int i = 0; i < kWords * kPerWord; ++i) {
    if (first + i < depth) {
      visit(0, fragment.element(0, i));
      visit(1, fragment.element(1, i));
    }
  }
}

// Joins what the four lanes of each line have, and leaves the lines of each warp in `lines`.
template <class Fragment, class T, class Combine>
BRRR_FN void share_lines(T (&part)[2], T (&lines)[kWarps][kTile], Combine combine) {
#pragma unroll
  for (int set = 0; set < 2; ++set) {
    part[set] = combine(part[set], __shfl_xor_sync(~0u, part[set], 1));
    part[set] = combine(part[set], __shfl_xor_sync(~0u, part[set], 2));
    if (threadIdx.x % 4 == 0)
      lines[threadIdx.x / 32][Fragment::line_of(set, threadIdx.x % 32 / 4)] = part[set];
  }
}
// One line of all warps.
template <class T, class Combine>
BRRR_FN T joined_lines(const T (&lines)[kWarps][kTile], int line, int depth, T joined,
                       Combine combine) {
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    if (warp * kChunk < depth) joined = combine(joined, lines[warp][line]);
  }
  return joined;
}
