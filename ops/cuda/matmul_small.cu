// Small matrix products on tensor cores. A block computes 16 x 16 results, one per thread; its
// warps split the summed dimension, and their sums are joined in the order of the warps. Operands
// are loaded from memory directly into the registers that mma reads, all loads of a warp at once,
// since memory latency dominates the time of such a product. Expects Element; MULTIPLY, the
// instruction; kRounds, whether that takes TF32; kAhead, the chunks that a warp loads at once;
// OperandLayout; and SmallFactors. The entry that includes it stores results.

constexpr int kTile = 16;
constexpr int kPerWord = 4 / sizeof(Element);
constexpr int kWords = 4;                // of a line, in a lane
constexpr int kRun = kWords * kPerWord;  // adjacent elements of a line, in a lane
constexpr int kChunk = 4 * kRun;         // of the summed dimension, in a warp
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
static_assert(kThreads == kTile * kTile, "one thread a result");

// Loads N adjacent words, or zeros. Bypasses the L1 cache: blocks share few lines, and if a factor
// is loaded before the wait for the previous kernel, the L1 may hold stale data.
template <int N>
BRRR_FN void take(u32* to, const void* from, bool inside) {
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

// A tensor as lines, rows of a or columns of b: the strides from one to the next and along one.
template <class T>
struct Lines {
  const T* from;
  i64 line, step;
};

// A warp's part of one tensor: of a factor, or of one that a factor is computed from. Lane 4 g + t
// has elements t kRun to (t + 1) kRun - 1 of two lines. The instruction expects words t and t + 4
// of eight, but since it sums over them, any order will do that both operands share; and lines may
// be permuted if the results are permuted back. With PAIRS the two lines of a lane are adjacent.
template <class T, OperandLayout LAYOUT, bool PAIRS = LAYOUT == mn_contiguous>
struct Fragment {
  typedef typename Words<sizeof(T)>::type Bits;
  static constexpr int kOfWord = 4 / sizeof(T);
  static constexpr int kWordsOfRun = kRun / kOfWord;

  u32 raw[LAYOUT == one_per_line ? 2 : 2 * kWordsOfRun];

  static BRRR_SCALAR_FN int line_of(int set, int group) {
    return PAIRS ? group * 2 + set : set * 8 + group;
  }

  BRRR_SCALAR_FN void read(const Lines<T>& lines, int line0, int count, int k0, int depth) {
    const Bits* const from = reinterpret_cast<const Bits*>(lines.from);
    const int first = line0 + line_of(0, threadIdx.x % 32 / 4);
    const int k = k0 + threadIdx.x % 4 * kRun;
    constexpr int kNext = PAIRS ? 1 : 8;  // the other line
    if constexpr (LAYOUT == k_contiguous) {
      constexpr int kAtOnce = kWordsOfRun < 4 ? kWordsOfRun : 4;
#pragma unroll
      for (int set = 0; set < 2; ++set) {
        const int at_line = first + set * kNext;
        const Bits* at = from + (u32(at_line) * u32(lines.line) + u32(k));
#pragma unroll
        for (int i = 0; i < kWordsOfRun; i += kAtOnce)
          take<kAtOnce>(raw + set * kWordsOfRun + i, at + i * kOfWord,
                        at_line < count && k < depth);
      }
    } else if constexpr (LAYOUT == mn_contiguous) {
      constexpr int kBoth = 2 / kOfWord;
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const Bits* at = from + (u32(k + i) * u32(lines.step) + u32(first));
        take<kBoth>(raw + i * kBoth, at, k + i < depth && first < count);
      }
    } else if constexpr (LAYOUT == one_per_line) {
#pragma unroll
      for (int set = 0; set < 2; ++set) {
        const int at = first + set * kNext;
        raw[set] = at < count ? load_before_wait(from + at * lines.line) : 0;
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2 * kRun; ++i) {
        const int at = first + i / kRun * kNext, deep = k + i % kRun;
        const u32 one = at < count && deep < depth ? from[at * lines.line + deep * lines.step] : 0;
        u32& word = raw[i / kOfWord];
        word = i % kOfWord ? word | one << i % kOfWord * 8 * sizeof(T) : one;
      }
    }
  }

  // A word of an operand of the instruction.
  BRRR_SCALAR_FN u32 word(int set, int i) const {
    if constexpr (LAYOUT != mn_contiguous) return factor(raw[set * kWords + i]);
    if constexpr (kPerWord == 1) return factor(raw[i * 2 + set]);
    return __byte_perm(raw[i * 2], raw[i * 2 + 1], set ? 0x7632 : 0x5410);
  }

  // Element i of this lane in its line of a set, counted along the summed dimension.
  BRRR_SCALAR_FN Register<T> element(int set, int i) const {
    const int at = LAYOUT == mn_contiguous  ? i * 2 + set
                   : LAYOUT == one_per_line ? set * kOfWord
                                            : set * kRun + i;
    const Bits bits = Bits(raw[at / kOfWord] >> at % kOfWord * 8 * sizeof(T));
    return widen(reinterpret_cast<const T&>(bits));
  }

  static BRRR_SCALAR_FN u32 factor(u32 word) {
    if constexpr (kRounds) {
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
    }
    return word;
  }
};

// A factor of a SmallTile says what it loads, and what the instruction takes of that. This one is
// in memory.
template <OperandLayout LAYOUT>
struct StoredFactor {
  typedef Fragment<Element, LAYOUT> Loaded;
  typedef Loaded Operand;

  Lines<Element> lines;

  BRRR_SCALAR_FN void load(Loaded& to, int line0, int count, int k, int depth) const {
    to.read(lines, line0, count, k, depth);
  }
  BRRR_SCALAR_FN const Operand& operand(const Loaded& loaded, int, int) const { return loaded; }
};

// The operand of a factor that is computed: `element` of a set and a place in a line. Beyond the
// depth it is zero, whatever `element` would make of the zeros that are loaded there.
template <class Operand, class F>
BRRR_FN Operand computed(int k, int depth, F element) {
  const int rest = depth - (k + int(threadIdx.x) % 4 * kRun);
  Operand operand;
#pragma unroll
  for (int i = 0; i < 2 * kWords; ++i) {
    const int set = i / kWords, first = i % kWords * kPerWord;
    const float low = first < rest ? element(set, first) : 0.0f;
    if constexpr (kPerWord == 1) {
      operand.raw[i] = __float_as_uint(low);
    } else {
      operand.raw[i] =
          narrow_pair(Element(), low, first + 1 < rest ? element(set, first + 1) : 0.0f);
    }
  }
  return operand;
}

template <class A, class B>
BRRR_FN void multiply(const A& a, const B& b, float (&sums)[2][4]) {
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
template <class A, class B>
struct SmallTile {
  A a;  // of the matrices of this block
  B b;
  int row0, col0;
  typename A::Loaded part_a[kAhead];
  typename B::Loaded part_b[kAhead];

  template <bool OF_A, bool OF_B>
  BRRR_SCALAR_FN void load(const SmallFactors& p, int k) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int from = k + i * kWarps * kChunk;
      if (OF_A) a.load(part_a[i], row0, p.m, from, p.k);
      if (OF_B) b.load(part_b[i], col0, p.n, from, p.k);
    }
  }

  // Where this warp begins.
  static BRRR_SCALAR_FN int first() { return threadIdx.x / 32 * kChunk; }
  // Its first loads: of both factors, or of one.
  BRRR_SCALAR_FN void load(const SmallFactors& p) { load<true, true>(p, first()); }
  BRRR_SCALAR_FN void load_a(const SmallFactors& p) { load<true, false>(p, first()); }
  BRRR_SCALAR_FN void load_b(const SmallFactors& p) { load<false, true>(p, first()); }

  // The sum of this thread's result. `visit` is called with every pair of operands and where they
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
        const int at = k + i * kWarps * kChunk;
        const typename A::Operand& of_a = a.operand(part_a[i], at, p.k);
        const typename B::Operand& of_b = b.operand(part_b[i], at, p.k);
        visit(of_a, of_b, at);
        multiply(of_a, of_b, sums);
      }
      k += kWarps * kChunk * kAhead;
      if (k >= p.k) break;
      load<true, true>(p, k);
    }
    const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    if (warp * kChunk < p.k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        parts[warp][A::Operand::line_of(i / 2 % 2, group)]
             [B::Operand::line_of(i / 4, pair + i % 2)] = sums[i / 4][i % 4];
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

// Calls visit(set, element) for what this lane has of an operand that begins at k.
template <class Operand, class Visit>
BRRR_FN void each_element(const Operand& operand, int k, int depth, Visit visit) {
  const int first = k + threadIdx.x % 4 * kRun;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    if (first + i < depth) {
      visit(0, operand.element(0, i));
      visit(1, operand.element(1, i));
    }
  }
}

// Joins what the four lanes of each line have, and leaves the lines of each warp in `lines`.
template <class Operand, class T, class Combine>
BRRR_FN void share_lines(T (&part)[2], T (&lines)[kWarps][kTile], Combine combine) {
#pragma unroll
  for (int set = 0; set < 2; ++set) {
    part[set] = combine(part[set], __shfl_xor_sync(~0u, part[set], 1));
    part[set] = combine(part[set], __shfl_xor_sync(~0u, part[set], 2));
    if (threadIdx.x % 4 == 0)
      lines[threadIdx.x / 32][Operand::line_of(set, threadIdx.x % 32 / 4)] = part[set];
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
