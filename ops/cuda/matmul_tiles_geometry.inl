// The geometry that all products of a launch of matmul_tiles.cu share: constants, and the positions
// of operand tiles, stages, blocks of a cluster, tiles of D and their shares of k.

struct TileProblem {
  i32 m, n, k;
  i32 tiles_m, tiles_n;        // in tiles of a cluster
  i32 batches, inner_batches;  // TMA walks batches in two dimensions
  i32 inner_a, outer_a;        // 1, or 0 where all batches share the operand
  i32 inner_b, outer_b;
  i32 band;  // rows of tiles that are walked together: they share the L2
};

constexpr int kRowBytes = 128;  // a swizzled row of shared memory
constexpr int kSlice = kRowBytes / sizeof(Element);
constexpr int kSteps = kRowBytes / 32;  // wgmma sums 32 bytes of k
constexpr int kBytesA = kTileM * kRowBytes, kStageBytes = (kTileM + kTileN) * kRowBytes;
constexpr int kGroupWarps = 4;
constexpr int kConsumerThreads = 128 * kConsumers;
// Registers: where two consumers have a multiprocessor to themselves, a producer of four warps
// gives them most of its own. Elsewhere one warp is enough.
constexpr bool kMovesRegisters = kConsumers == 2 && kBlocksPerMultiprocessor == 1;
constexpr int kProducerRegisters = kAnyReduces ? 56 : 40,
              kConsumerRegisters = kAnyReduces ? 224 : 232;
constexpr int kThreads = kConsumerThreads + (kMovesRegisters ? 128 : 32);
constexpr int kBlocksM = kTileM / 64 / (kPingPong ? 1 : kConsumers);  // 64-row blocks a warpgroup
typedef float Sums[kBlocksM][kTileN / 2];                             // of a thread
constexpr int kCluster = kClusterM * kClusterN * kSplits;
constexpr int kSharers =
    kClusterM + kClusterN - 1;                  // blocks that read what this one loads, or load
constexpr int kTileColumns = kTileN / kSplits;  // that a block hands to the epilogue
// Staged tensors pass through boxes of a warp: the 16 rows of a warp by at most 128 bytes, in one
// of two buffers. Boxes of outputs come first. Products of a launch use the same boxes.
constexpr int kBoxBytes = 2048, kBuffers = 2;
constexpr int kWarpStagingBytes = (kMostInputs + kMostOutputs) * kBuffers * kBoxBytes;
static_assert(kSplits == 1 || (kClusterM * kClusterN == 1 && !kPingPong), "splits stand alone");
static_assert(kSplits == 1 || kTileM * kTileN * 4 <= kStages * kStageBytes, "sums reuse stages");
static_assert(kStages >= 2, "a stage is released once the next one is being multiplied");
static_assert(!kPingPong || kConsumers == 2, "two take turns");
static_assert(kBlocksM >= 1 && kTileN % 32 == 0, "a warpgroup has 64 rows, a box 16 columns");
static_assert(kProducts == 1 || kSplits == 1, "splits stand alone");
// Where a product reduces the lines of A, idle warps of the producer's warpgroup read each stage
// too.
constexpr int kReducerWarps = 2;
static_assert(!kAnyReduces || (kMovesRegisters && kClusterN == 1), "each block loads its own A");
static_assert(!kAnyReduces || kSplits == 1, "a block sees all of k");

// A tile of kTile lines (rows of A, columns of B) by kSlice of k, loaded by kPeers blocks together.
// Along k: each line is one 128-byte row. Along m or n: 64 lines of 16-bit elements are one
// 128-byte row for each k, 16 lines of TF32 one 64-byte row, and such columns of lines follow one
// another. Rows are swizzled in groups of eight.
template <bool kMnMajor, int kTile, int kPeers>
struct OperandTile {
  // Where lines are adjacent: those of a column, the bytes of its rows, and its own.
  static constexpr int kColumnLines = sizeof(Element) == 2 ? 64 : 16;
  static constexpr int kColumnRowBytes = kColumnLines * sizeof(Element);
  static constexpr int kColumnBytes = kSlice * kColumnRowBytes;

  // This block's share of the tile, which all blocks of `mask` get.
  static BRRR_SCALAR_FN void load(const TensorMap& map, u32 to, u32 barrier, i32 line, i32 k,
                                  i32 inner, i32 outer, int peer, u32 mask) {
    if constexpr (kMnMajor) {
      constexpr int kDeep = kSlice / kPeers;
#pragma unroll
      for (int i = 0; i < kTile / kColumnLines; ++i)
        load_box<(kPeers > 1)>(map, to + i * kColumnBytes + peer * kDeep * kColumnRowBytes, barrier,
                               line + i * kColumnLines, k + peer * kDeep, inner, outer, mask);
    } else {
      constexpr int kLines = kTile / kPeers;
      load_box<(kPeers > 1)>(map, to + peer * kLines * kRowBytes, barrier, k, line + peer * kLines,
                             inner, outer, mask);
    }
  }
  // How wgmma finds the tile: its address, the stride between columns of 64 lines, the stride
  // between groups of eight rows, the 128-byte swizzle. All in units of 16 bytes. In a cluster the
  // address also has the block's rank, above the 18 bits that count here.
  static BRRR_SCALAR_FN u64 descriptor(u32 tile) {
    constexpr u64 kBetweenColumns = kMnMajor ? kColumnBytes / 16 : 1;
    return u64(1) << 62 | u64(8 * kRowBytes / 16) << 32 | kBetweenColumns << 16 |
           (tile & 0x3ffff) >> 4;
  }
  // What to add for 64-line block `block` and step `step` along k.
  static constexpr BRRR_SCALAR_FN u64 offset(int block, int step) {
    return kMnMajor ? (block * kColumnBytes + step * kSlice / kSteps * kRowBytes) / 16
                    : (block * 64 * kRowBytes + step * 32) / 16;
  }
};

// The position of a producer or consumer in the ring of stages.
struct Ring {
  int stage = 0;
  u32 parity = 0;
  BRRR_SCALAR_FN void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  BRRR_SCALAR_FN void skip(int slices) {
    parity ^= (stage + slices) / kStages & 1;
    stage = (stage + slices) % kStages;
  }
};

struct Shared {
  u32 stages, full, empty;  // addresses
  BRRR_SCALAR_FN u32 a(int stage) const { return stages + stage * kStageBytes; }
  BRRR_SCALAR_FN u32 b(int stage) const { return a(stage) + kBytesA; }
  BRRR_SCALAR_FN u32 boxes(u32 warp) const {
    return stages + kStages * kStageBytes + warp * kWarpStagingBytes;
  }
  BRRR_SCALAR_FN u32 loaded(int product, u32 warp) const {
    return empty + 8 * (kStages + (product * kConsumerThreads / 32 + warp) * kBuffers);
  }
};

// This block's place in its cluster.
struct Role {
  int m, n, split;
  BRRR_SCALAR_FN Role() {
    const int rank = kCluster > 1 ? block_of_cluster() : 0;
    m = rank % kClusterM;
    n = rank / kClusterM % kClusterN;
    split = kSplits > 1 ? rank : 0;
  }
};

struct Tile {
  i32 batch, row, col;
  BRRR_SCALAR_FN Tile(const TileProblem& p, i32 index, const Role& role) {
    const i32 of_batch = p.tiles_m * p.tiles_n, of_band = p.band * p.tiles_n;
    batch = index / of_batch;
    index -= batch * of_batch;
    const i32 band = index / of_band;
    index -= band * of_band;
    const i32 first = band * p.band, rows = min(p.band, p.tiles_m - first);
    row = ((first + index % rows) * kClusterM + role.m) * kTileM;
    col = (index / rows * kClusterN + role.n) * kTileN;
  }
};

// The slices of k that this block sums.
struct Depth {
  i32 first, slices;
  BRRR_SCALAR_FN Depth(const TileProblem& p, const Role& role) {
    const i32 all = (p.k + kSlice - 1) / kSlice, each = (all + kSplits - 1) / kSplits;
    first = each * role.split;
    slices = max(0, min(each, all - first));
  }
};

// The tiles of a cluster, in the order in which it computes them. Of one product clusters take
// tiles in turn. Of several each takes a range of the tiles of every product, which the host chose.
struct TileRanges {
  unsigned short ends[kProducts][kMostClusters];
};
struct TileSequence {
  i32 turns, counts[kProducts], first[kProducts];

  BRRR_SCALAR_FN TileSequence(const TileRanges& ranges, i32 tiles) {
    const i32 cluster = blockIdx.x / kCluster, clusters = gridDim.x / kCluster;
    if constexpr (kProducts == 1) {
      first[0] = cluster;
      turns = counts[0] = cluster < tiles ? (tiles - 1 - cluster) / clusters + 1 : 0;
    } else {
      turns = 0;
#pragma unroll
      for (int i = 0; i < kProducts; ++i) {
        first[i] = cluster > 0 ? ranges.ends[i][cluster - 1] : 0;
        counts[i] = ranges.ends[i][cluster] - first[i];
        turns += counts[i];
      }
    }
  }
  struct Turn {
    int product;
    i32 tile;
  };
  BRRR_SCALAR_FN Turn at(i32 turn) const {
    if constexpr (kProducts == 1) {
      return {0, first[0] + turn * i32(gridDim.x / kCluster)};
    } else {
#pragma unroll
      for (int i = 0; i + 1 < kProducts; ++i) {
        if (turn < counts[i]) return {i, first[i] + turn};
        turn -= counts[i];
      }
      return {kProducts - 1, first[kProducts - 1] + turn};
    }
  }
};

// --- How the warps of a block work together ---

// A warp has finished reading the stage: notifies every block that may load into it.
BRRR_FN void release(const Shared& shared, int stage, const Role& role) {
  const int lane = threadIdx.x % 32;
  const u32 empty = shared.empty + 8 * stage;
  if constexpr (kSharers == 1) {
    if (lane == 0) barrier_arrive(empty);
  } else if (lane < kSharers) {
    int m = role.m, n = role.n;
    if (lane < kClusterM) {
      m = lane;
    } else {
      n = lane - kClusterM;
      n += n >= role.n;
    }
    barrier_arrive_in(empty, m + n * kClusterM);
  }
}

BRRR_FN void give_registers() {
  if constexpr (kMovesRegisters)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
}
BRRR_FN void take_registers() {
  if constexpr (kMovesRegisters)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
}

// Ping-pong: consumers multiply in turn. Without turns a consumer could wait for a stage two rounds
// ahead, whose parity equals that of the current round.
BRRR_FN void wait_for_turn(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(2 + group), "n"(kConsumerThreads) : "memory");
}
BRRR_FN void give_turn_to(int group) {
  asm volatile("bar.arrive %0, %1;" ::"r"(2 + group), "n"(kConsumerThreads) : "memory");
}
