// Matrix products on Hopper's tensor cores with generated epilogues: D = epilogue(A B), sums in
// f32. A launch computes one product, or several that do not depend on each other, each as a struct
// Product (matmul_tiles_product.inl) in a namespace of its own. A producer warp copies slices of
// both operands into a ring of shared-memory stages (TMA, mbarriers); one or two consumer
// warpgroups multiply them (wgmma) and hand the sums to the epilogue. Each result is a sum in one
// fixed order: bits are the same from run to run.
//
// These constants are defined before this source:
// - kTileM, kTileN: the results of a block. kStages: the slices of k in flight.
// - kConsumers: warpgroups that multiply. They share the rows of a tile.
// - kPingPong: each of two consumers takes every second tile in place of half of its rows, so that
//   the epilogue of one runs beside the products of the other.
// - kClusterM, kClusterN: blocks of a cluster along m and n. An operand that they share is loaded
//   once, by multicast.
// - kSplits: blocks of a cluster that share the summed dimension of one tile. They join their sums
//   in the order of the splits, through distributed shared memory.
// - kBlocksPerMultiprocessor.
// - kProducts: of the launch. kMostInputs, kMostOutputs: staged tensors of any of them.
//   kAnyReduces: whether kReducedVectors is above 0 for any.
// So do Element, matmul_tiles_instructions.inl and _geometry.inl; and, in the namespace of each
// product:
// - kMnMajorA, kMnMajorB: elements are adjacent along m or n in place of k; in f32 those of A only.
// - kReducedVectors: of 16 bytes along the lines of A, that a block reduces beside the product.
// - TileA, TileB: the OperandTile of each.
// - multiply_add(): the instruction for 64 x kTileN results.
// - matmul_tiles_a_in_shared.inl or _a_in_registers.inl, struct Epilogue, matmul_tiles_epilogue.inl
//   and _product.inl.
//
// The epilogue sees two adjacent columns at a time, in the layout of the accumulators. Tensors of
// D's shape that the copy engine can take pass through shared memory: its inputs are there before
// it runs, and its outputs leave while it goes on. Everything else it loads and stores itself.
//   struct Epilogue {         // as the host fills it: pointers, strides
//     typedef bf16 Staged;    // the element type of staged tensors: f32, bf16, f16
//     static constexpr int kInputs = 1, kOutputs = 1;  // staged tensors: at most 2 and 3
//     // Those with elements adjacent along m in place of n, as bits; of f32 only.
//     static constexpr u32 kTransposedInputs = 0, kTransposedOutputs = 0;
//     struct Columns {};      // what the rows of two columns share: a bias
//     Columns columns(i32 batch, i32 col, i32 count) const;
//     void apply(i32 batch, i32 row, i32 col, i32 count, const Columns&, const float (&sums)[2],
//                const float (*inputs)[2], float (*outputs)[2]) const;
//   };
// With kReducedVectors it also has a typedef Sum, static functions identity(), map(float),
// combine(Sum, Sum), and store_line(i32 line, Sum joined, i32 depth).
// `col` is even. `count`, 0 to 2, says how many of the two columns exist, in a row that exists.
// columns() is called ahead of its use, so it may not read what apply() writes.

template <class... Products>
BRRR_FN void load_tiles(const Shared& shared, const Role& role, const TileSequence& tiles,
                        const Products&... products) {
  Ring ring;
  for (i32 turn = 0; turn < tiles.turns; ++turn) {
    const TileSequence::Turn at = tiles.at(turn);
    int number = 0;
    ((number++ == at.product ? products.load(shared, role, at.tile, ring) : void()), ...);
  }
}

template <class... Products>
BRRR_FN void reduce_tiles(const Shared& shared, const Role& role, const TileSequence& tiles,
                          const Products&... products) {
  Ring ring;
  for (i32 turn = 0; turn < tiles.turns; ++turn) {
    const TileSequence::Turn at = tiles.at(turn);
    int number = 0;
    ((number++ == at.product ? products.reduce(shared, role, at.tile, ring) : void()), ...);
  }
}

template <class... Products>
BRRR_FN void consume_tiles(const Shared& shared, const Role& role, const TileSequence& tiles,
                           Products&... products) {
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  Ring ring;
  if (kPingPong && group == 1) give_turn_to(0);
  for (i32 turn = 0; turn < tiles.turns; ++turn) {
    const TileSequence::Turn at = tiles.at(turn);
    const bool is_last = turn + 1 == tiles.turns;
    int number = 0;
    if (kPingPong && turn % 2 != group) {
      ((number++ == at.product ? ring.skip(products.slices(role)) : void()), ...);
    } else {
      ((number++ == at.product ? products.consume(shared, role, at.tile, group, is_last, ring)
                               : void()),
       ...);
    }
  }
  if (threadIdx.x % 32 == 0) stores_wait<0>();
}

BRRR_FN void init_barriers(const Shared& shared) {
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) {
    barrier_init(shared.full + 8 * stage, 1);
    barrier_init(shared.empty + 8 * stage,
                 kGroupWarps * (kPingPong ? 1 : kConsumers) * kSharers +
                     (kAnyReduces ? kReducerWarps : 0));
  }
  for (int i = 0; i < kProducts * kConsumerThreads / 32 * kBuffers; ++i)
    barrier_init(shared.loaded(0, 0) + 8 * i, 1);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

template <class... Products>
BRRR_FN void compute(const TileRanges& ranges, Products... products) {
  wait_for_previous_kernel();
  extern __shared__ u8 dynamic[];
  __shared__ u64 barriers[2 * kStages + kProducts * kConsumerThreads / 32 * kBuffers];
  Shared shared;
  shared.stages = (shared_address(dynamic) + 1023) & ~1023u;  // swizzled groups of rows are aligned
  shared.full = shared_address(barriers);
  shared.empty = shared.full + 8 * kStages;
  const Role role;
  const bool producer = threadIdx.x >= kConsumerThreads;
  if (threadIdx.x == kConsumerThreads) init_barriers(shared);
  __syncthreads();
  if (kSharers > 1) {  // other blocks must not load or arrive before this one's barriers are ready
    cluster_arrive();
    cluster_wait();
  }
  const TileSequence tiles(ranges, (products.tiles() + ...));
  if (producer) {
    give_registers();
    if (threadIdx.x == kConsumerThreads) load_tiles(shared, role, tiles, products...);
    if (kAnyReduces && threadIdx.x >= kConsumerThreads + 32 &&
        threadIdx.x < kConsumerThreads + 32 + 32 * kReducerWarps)
      reduce_tiles(shared, role, tiles, products...);
    __syncwarp();
    if (kSplits > 1) {
      cluster_arrive();
      cluster_wait();
    }
  } else {
    take_registers();
    const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    int number = 0;
    (products.use(shared, warp, number++), ...);
    consume_tiles(shared, role, tiles, products...);
  }
  if (kCluster > 1) {  // other blocks may still read this one's shared memory, or arrive in it
    __syncwarp();
    kSharers > 1 ? cluster_arrive() : cluster_arrive_relaxed();  // arrivals are stores
    cluster_wait();
  }
}
