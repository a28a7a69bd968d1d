// Products of attention.cu: fragments in registers, tiles in shared memory, and how they get there.
//
// A block of four warps has 64 rows as left factors, 16 a warp. Tiles of the other factor pass
// through shared memory. On Hopper a warpgroup multiplies 16-bit factors whose rows are whole
// swizzled lines (wgmma); elsewhere each warp does (mma). Both leave a sum in the same lane.

constexpr int kThreads = 128, kRows = 64;
constexpr int kDepth = sizeof(Element) == 2 ? 16 : 8;  // summed by one instruction
constexpr int kSteps = kWidth / kDepth;
constexpr int kUnit = 16 / sizeof(Element);                // elements of a 16-byte access
constexpr int kGroups = kTile / 8, kColumns = kWidth / 8;  // of eight columns
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kSwizzled = sizeof(Element) == 2 && kWidth % 64 == 0;
#else
constexpr bool kSwizzled = false;
#endif
constexpr int kPitch = kWidth + kUnit;  // of a row that is not swizzled: no bank conflicts
constexpr int kTilePitch = kSwizzled ? kWidth : kPitch;  // shared memory of a row

typedef float Sums[4];  // rows g and g + 8, columns 2 t and 2 t + 1, in lane 4 g + t
typedef u32 Left[4];    // a fragment of the left factor

BRRR_FN int lane() { return threadIdx.x % 32; }
BRRR_FN int warp() { return threadIdx.x / 32; }
BRRR_FN u32 address_of(const Element* shared) { return u32(__cvta_generic_to_shared(shared)); }

// Where 16 bytes of a tile of kCount rows are. Swizzled: panels of 64 columns, whose 128-byte rows
// have their units exchanged by the number of the row.
template <int kCount>
BRRR_FN int place_of(int row, int unit) {
  if constexpr (kSwizzled) {
    return (unit / 8 * kCount + row) * 64 + (unit % 8 ^ row % 8) * kUnit;
  } else {
    return row * kPitch + unit * kUnit;
  }
}

BRRR_FN u32 bits_of(float a) {  // rounded to TF32
  u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(a));
  return bits;
}

#define BRRR_MMA(shape, type, T)                                         \
  BRRR_FN void multiply_add(Sums& c, const Left& a, u32 b0, u32 b1, T) { \
    asm("mma.sync.aligned." shape ".row.col.f32." type "." type          \
        ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"     \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                 \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
  }
BRRR_MMA("m16n8k16", "bf16", bf16)
BRRR_MMA("m16n8k16", "f16", f16)
BRRR_MMA("m16n8k8", "tf32", float)
#undef BRRR_MMA

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// 64 rows by 64 columns, 16 deep, added to the sums or in their place. The left factor is in
// registers, and the rows of the right one are along the depth; or both are rows in shared memory.
#define BRRR_FOUR(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define BRRR_SUMS                                                                     \
  BRRR_FOUR(0), BRRR_FOUR(1), BRRR_FOUR(2), BRRR_FOUR(3), BRRR_FOUR(4), BRRR_FOUR(5), \
      BRRR_FOUR(6), BRRR_FOUR(7)
#define BRRR_SUM_NUMBERS                                                                        \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
  "%25,%26,%27,%28,%29,%30,%31}"
#define BRRR_WGMMA(type, T)                                                              \
  BRRR_FN void add_product_async(Sums* c, const Left& a, u64 b, T) {                     \
    asm volatile(                                                                        \
        "{ .reg .pred adds; setp.eq.u32 adds, 0, 0; "                                    \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " BRRR_SUM_NUMBERS \
        ", {%32,%33,%34,%35}, %36, adds, 1, 1, 1; }"                                     \
        : BRRR_SUMS                                                                      \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                           \
  }                                                                                      \
  BRRR_FN void multiply_rows_async(Sums* c, u64 a, u64 b, bool adds, T) {                \
    asm volatile(                                                                        \
        "{ .reg .pred adds; setp.ne.u32 adds, %34, 0; "                                  \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " BRRR_SUM_NUMBERS \
        ", %32, %33, adds, 1, 1, 0, 0; }"                                                \
        : BRRR_SUMS                                                                      \
        : "l"(a), "l"(b), "r"(u32(adds)));                                               \
  }
BRRR_WGMMA("bf16", bf16)
BRRR_WGMMA("f16", f16)
#undef BRRR_WGMMA
#undef BRRR_SUM_NUMBERS
#undef BRRR_SUMS
#undef BRRR_FOUR
BRRR_FN void add_product_async(Sums*, const Left&, u64, float) {}
BRRR_FN void multiply_rows_async(Sums*, u64, u64, bool, float) {}

// Groups of eight 128-byte rows, 1 KB apart, swizzled.
BRRR_FN u64 descriptor_of(const Element* rows) {
  return u64(1) << 62 | u64(64) << 32 | u64(1) << 16 | (address_of(rows) & 0x3ffff) >> 4;
}
#endif
// wgmma reads and writes registers until it is waited for, which the compiler does not know: what
// the products have as operands is pinned before and after them.
template <class T, int N>
BRRR_FN void pin(T (&registers)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (sizeof(T) == sizeof(float) && T(0.5) != T(0)) {
        asm volatile("" : "+f"(registers[i][j])::"memory");
      } else {
        asm volatile("" : "+r"(registers[i][j])::"memory");
      }
    }
  }
}
template <class... Operands>
BRRR_FN void start_products(Operands&... operands) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (kSwizzled) {
    (pin(operands), ...);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  }
#endif
}
// The sums of all products since start_products() are there.
template <class... Operands>
BRRR_FN void finish_products(Operands&... operands) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (kSwizzled) {
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::
                     : "memory");
    (pin(operands), ...);
  }
#endif
}

template <bool kTransposed>
BRRR_FN void load_matrices(u32 (&to)[4], const Element* from) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address_of(from))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address_of(from))
                 : "memory");
  }
}
// Two numbers of 16 bits.
template <class T>
BRRR_FN u32 packed(float low, float high) {
  if constexpr (sizeof(T) == 2) {
    return narrow_pair(T(), low, high);
  } else {
    return 0;
  }
}
// The product of the numbers of a word of one fragment and of another.
template <class T>
BRRR_FN float product_of(u32 a, u32 b) {
  if constexpr (sizeof(T) == 2) {
    return widen_half(T(), a, false) * widen_half(T(), b, false) +
           widen_half(T(), a, true) * widen_half(T(), b, true);
  } else {
    return __uint_as_float(a) * __uint_as_float(b);
  }
}
BRRR_FN u32 word_at(const Element* shared) { return *reinterpret_cast<const u32*>(shared); }

// The 16 rows of this warp.
BRRR_FN void load_left(Left (&left)[kSteps], const Element* rows) {
  const int l = lane(), first = warp() * 16;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if constexpr (sizeof(Element) == 2) {
      load_matrices<false>(left[step], rows + place_of<kRows>(first + l % 16, 2 * step + l / 16));
    } else {
      const Element* at = rows + (first + l / 4) * kPitch + step * 8 + l % 4;
      left[step][0] = word_at(at);
      left[step][1] = word_at(at + 8 * kPitch);
      left[step][2] = word_at(at + 4);
      left[step][3] = word_at(at + 8 * kPitch + 4);
    }
  }
}

// The 64 rows of a block as a left factor: for wgmma where they are, else in registers. (With a
// factor that stays in registers over a loop of wgmmas, ptxas 13.0 reuses its registers.)
struct BlockRows {
  const Element* rows;
  Left left[kSteps];  // not swizzled
};

// The rows of a block, kWidth deep, times the rows of a tile: column c of the sums is of row c.
BRRR_FN void multiply_by_rows(Sums (&c)[kGroups], const BlockRows& block, const Element* tile) {
  if constexpr (kSwizzled) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      multiply_rows_async(c, descriptor_of(block.rows + step / 4 * kRows * 64) + step % 4 * 2,
                          descriptor_of(tile + step / 4 * kTile * 64) + step % 4 * 2, step > 0,
                          Element());
#endif
    return;
  }
  const int l = lane();
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int j = 0; j < 4; ++j) c[group][j] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if constexpr (sizeof(Element) == 2) {
#pragma unroll
      for (int pair = 0; pair < kGroups / 2; ++pair) {
        u32 b[4];
        load_matrices<false>(
            b, tile + place_of<kTile>(pair * 16 + l / 16 * 8 + l % 8, 2 * step + l / 8 % 2));
        multiply_add(c[2 * pair], block.left[step], b[0], b[1], Element());
        multiply_add(c[2 * pair + 1], block.left[step], b[2], b[3], Element());
      }
    } else {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const Element* at = tile + (group * 8 + l / 4) * kPitch + step * 8 + l % 4;
        multiply_add(c[group], block.left[step], word_at(at), word_at(at + 4), Element());
      }
    }
  }
}

// The sums of a tile as left factors, kTile deep. In TF32 depth t is their column 2 t and depth
// t + 4 their column 2 t + 1: numbers stay in the lanes that have them.
struct LeftOfSums {
  Left steps[kTile / kDepth];
  BRRR_SCALAR_FN explicit LeftOfSums(const Sums (&c)[kGroups]) {
#pragma unroll
    for (int step = 0; step < kTile / kDepth; ++step) {
      Left& a = steps[step];
      if constexpr (sizeof(Element) == 2) {
        const Sums &w = c[2 * step], &x = c[2 * step + 1];
        a[0] = packed<Element>(w[0], w[1]);
        a[1] = packed<Element>(w[2], w[3]);
        a[2] = packed<Element>(x[0], x[1]);
        a[3] = packed<Element>(x[2], x[3]);
      } else {
        const Sums& w = c[step];
        a[0] = bits_of(w[0]);
        a[1] = bits_of(w[2]);
        a[2] = bits_of(w[1]);
        a[3] = bits_of(w[3]);
      }
    }
  }
};

// Adds `left` times a tile, whose rows are along the depth.
BRRR_FN void add_product(Sums (&c)[kColumns], const LeftOfSums& left, const Element* tile) {
  if constexpr (kSwizzled) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
#pragma unroll
      for (int panel = 0; panel < kWidth / 64; ++panel)
        add_product_async(&c[panel * 8], left.steps[step],
                          descriptor_of(tile + (panel * kTile + step * 16) * 64), Element());
    }
#endif
    return;
  }
  const int l = lane();
#pragma unroll
  for (int step = 0; step < kTile / kDepth; ++step) {
    if constexpr (sizeof(Element) == 2) {
#pragma unroll
      for (int pair = 0; pair < kColumns / 2; ++pair) {
        u32 b[4];
        load_matrices<true>(b, tile + place_of<kTile>(step * 16 + l % 16, pair * 2 + l / 16));
        multiply_add(c[2 * pair], left.steps[step], b[0], b[1], Element());
        multiply_add(c[2 * pair + 1], left.steps[step], b[2], b[3], Element());
      }
    } else {
#pragma unroll
      for (int group = 0; group < kColumns; ++group) {
        const Element* at = tile + (step * 8 + l % 4 * 2) * kPitch + group * 8 + l / 4;
        multiply_add(c[group], left.steps[step], word_at(at), word_at(at + kPitch), Element());
      }
    }
  }
}

// --- Between memory and shared memory ---

// Copies 16 bytes, or zeros.
BRRR_FN void start_unit(Element* to, const Element* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address_of(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
// Starts to copy `kCount` rows from `first` on; those from `bound` on are zeros, and their
// addresses are not read. `kKeeps`: each thread keeps an address between tiles, which takes
// registers; otherwise it computes one for each unit. 64 rows span less than 2^31 elements.
template <int kCount, bool kKeeps = true>
BRRR_FN void start_rows(Element* shared, const Element* matrix, i64 row_stride, i32 first,
                        i32 bound) {
  constexpr int kUnits = kWidth / kUnit, kPasses = (kCount * kUnits + kThreads - 1) / kThreads;
  const int thread = threadIdx.x;
  if constexpr (kKeeps && kThreads % kUnits == 0 && kCount * kUnits % kThreads == 0) {
    constexpr int kRowsOfPass = kThreads / kUnits;
    const i32 row = thread / kUnits, unit = thread % kUnits;
    const Element* from = matrix + first * row_stride + (row * i32(row_stride) + unit * kUnit);
    const i64 step = kRowsOfPass * row_stride;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const i32 at = row + pass * kRowsOfPass;
      start_unit(shared + place_of<kCount>(at, unit), from + pass * step, first + at < bound);
    }
  } else {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int i = pass * kThreads + thread;
      if (kCount * kUnits % kThreads != 0 && i >= kCount * kUnits) break;
      const i32 row = i / kUnits, unit = i % kUnits;
      const bool inside = first + row < bound;
      const Element* from = matrix + (inside ? (first + row) * row_stride + unit * kUnit : 0);
      start_unit(shared + place_of<kCount>(row, unit), from, inside);
    }
  }
}
BRRR_FN void end_of_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last kLeft groups of copies are there, for every thread.
template <int kLeft>
BRRR_FN void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (kSwizzled) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
}

// Loads the rows of a block to `shared`, which the block may use again unless it is swizzled.
BRRR_FN void load_block(BlockRows& block, Element* shared, const Element* matrix, i64 row_stride,
                        i32 first, i32 bound) {
  __syncthreads();
  start_rows<kRows>(shared, matrix, row_stride, first, bound);
  end_of_group();
  wait_for_groups<0>();
  block.rows = shared;
  if constexpr (!kSwizzled) load_left(block.left, shared);
}

// The same of two tensors; their loads overlap where each has shared memory of its own.
BRRR_FN void load_blocks(BlockRows& one, Element* shared_one, const Element* matrix_one,
                         i64 stride_one, BlockRows& other, Element* shared_other,
                         const Element* matrix_other, i64 stride_other, i32 first, i32 bound) {
  if constexpr (kSwizzled) {
    __syncthreads();
    start_rows<kRows>(shared_one, matrix_one, stride_one, first, bound);
    start_rows<kRows>(shared_other, matrix_other, stride_other, first, bound);
    end_of_group();
    wait_for_groups<0>();
    one.rows = shared_one;
    other.rows = shared_other;
  } else {
    load_block(one, shared_one, matrix_one, stride_one, first, bound);
    load_block(other, shared_other, matrix_other, stride_other, first, bound);
  }
}

// Starts to copy kTile floats from index `first` on, one for each of as many threads from `thread`
// on. Floats at indices from `bound` on are zeros.
BRRR_FN void start_numbers(float* shared, const float* numbers, i32 first, i32 bound, int thread) {
  const i32 i = i32(threadIdx.x) - thread;
  if (i < 0 || i >= kTile) return;
  const bool inside = first + i < bound;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                   u32(__cvta_generic_to_shared(shared + i))),
               "l"(numbers + (inside ? first + i : 0)), "r"(inside ? 4 : 0)
               : "memory");
}

BRRR_FN void store_pair(Element* to, float a, float b) {
  if constexpr (sizeof(Element) == 2) {
    *reinterpret_cast<u32*>(to) = packed<Element>(a, b);
  } else {
    *reinterpret_cast<float2*>(to) = make_float2(a, b);
  }
}
BRRR_FN void store_block(const Sums (&c)[kColumns], Element* matrix, i64 row_stride, i32 first,
                         i32 bound) {
  const i32 row = first + warp() * 16 + lane() / 4;
#pragma unroll
  for (int group = 0; group < kColumns; ++group) {
    const i32 column = group * 8 + lane() % 4 * 2;
    if (row < bound) store_pair(matrix + row * row_stride + column, c[group][0], c[group][1]);
    if (row + 8 < bound)
      store_pair(matrix + (row + 8) * row_stride + column, c[group][2], c[group][3]);
  }
}
