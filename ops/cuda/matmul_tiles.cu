// Matrix products on Hopper's tensor cores with a generated epilogue: D = epilogue(A B), sums in
// f32. A producer warp copies slices of both operands into a ring of shared-memory stages (TMA,
// mbarriers); one or two consumer warpgroups multiply them (wgmma) and hand the sums to the
// epilogue. Each result is a sum in one fixed order: bits are the same from run to run.
//
// These constants stand before this text:
// - kTileM, kTileN: the results of a block. kStages: the slices of k in flight.
// - kConsumers: warpgroups that multiply. They share the rows of a tile.
// - kPingPong: each of two consumers takes every second tile in place of half of its rows, so that
//   the epilogue of one runs beside the products of the other.
// - kClusterM, kClusterN: blocks of a cluster along m and n. An operand that they share is loaded
//   once, by multicast.
// - kSplits: blocks of a cluster that share the summed dimension of one tile. They join their sums
//   in the order of the splits, through distributed shared memory.
// - kMnMajorA, kMnMajorB: elements are adjacent along m or n in place of k; 16-bit types only.
// - kBlocksPerMultiprocessor.
// So do Element, multiply_add(), which is the instruction for 64 x kTileN results, struct Epilogue,
// and matmul_tiles_instructions.inl, _geometry.inl and _epilogue.inl.
//
// The epilogue sees two adjacent columns at a time, in the layout of the accumulators. Tensors of
// D's shape that the copy engine can take pass through shared memory: its inputs are there before
// it runs, and its outputs leave while it goes on. Everything else it loads and stores itself.
//   struct Epilogue {         // as the host fills it: pointers, strides
//     typedef bf16 Staged;    // the element type of staged tensors: f32, bf16, f16
//     static constexpr int kInputs = 1, kOutputs = 1;  // staged tensors: at most 2 and 2
//     struct Columns {};      // what the rows of two columns share: a bias
//     Columns columns(i32 batch, i32 col, i32 count) const;
//     void apply(i32 batch, i32 row, i32 col, i32 count, const Columns&, const float (&sums)[2],
//                const float (*inputs)[2], float (*outputs)[2]) const;
//   };
// `col` is even. `count`, 0 to 2, says how many of the two columns exist, in a row that exists.
// columns() is called ahead of its use, so it may not read what apply() writes.

// --- Producer ---

BRRR_FN void load_tiles(const TensorMap& map_a, const TensorMap& map_b, const TileProblem& p,
                        const Shared& shared, const Role& role, i32 first, i32 tiles, i32 step) {
  const Depth depth(p, role);
  u32 sharers_a = 0;
#pragma unroll
  for (int n = 0; n < kClusterN; ++n) sharers_a |= 1u << (role.m + n * kClusterM);
  const u32 sharers_b = ((1u << kClusterM) - 1) << role.n * kClusterM;
  Ring ring;
  for (i32 index = first; index < tiles; index += step) {
    const Tile tile(p, index, role);
    const i32 outer = tile.batch / p.inner_batches, inner = tile.batch - outer * p.inner_batches;
    const i32 inner_a = inner * p.inner_a, outer_a = outer * p.outer_a;
    const i32 inner_b = inner * p.inner_b, outer_b = outer * p.outer_b;
    for (i32 slice = 0; slice < depth.slices; ++slice, ring.advance()) {
      const u32 full = shared.full + 8 * ring.stage;
      const i32 k = (depth.first + slice) * kSlice;
      barrier_wait(shared.empty + 8 * ring.stage, ring.parity ^ 1);
      barrier_expect(full, kStageBytes);
      TileA::load(map_a, shared.a(ring.stage), full, tile.row, k, inner_a, outer_a, role.n,
                  sharers_a);
      TileB::load(map_b, shared.b(ring.stage), full, tile.col, k, inner_b, outer_b, role.m,
                  sharers_b);
    }
  }
}

// --- Consumers ---

// One warp no longer reads the stage: every block that may load into it hears of it.
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

// Starts all products of a tile; at the end those of the last stage are still under way.
BRRR_FN void multiply_tile(const Shared& shared, const Role& role, i32 slices, int block,
                           Ring& ring, Sums& sums) {
  int last = 0;
#pragma unroll 1
  for (i32 slice = 0; slice < slices; ++slice) {
    barrier_wait(shared.full + 8 * ring.stage, ring.parity);
    const u64 a = TileA::descriptor(shared.a(ring.stage)) + TileA::offset(block, 0),
              b = TileB::descriptor(shared.b(ring.stage));
    products_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i)
        multiply_add(sums[i], a + TileA::offset(i, step), b + TileB::offset(0, step),
                     step > 0 || slice > 0);
    }
    products_commit();
    products_wait<1>();
    if (slice > 0) release(shared, last, role);
    last = ring.stage;
    ring.advance();
  }
}

// Waits for the products that multiply_tile() left.
BRRR_FN void finish_products(const Shared& shared, const Role& role, i32 slices, const Ring& ring,
                             Sums& sums) {
  products_wait<0>();
  if (slices > 0) release(shared, (ring.stage + kStages - 1) % kStages, role);
#pragma unroll
  for (int i = 0; i < kBlocksM; ++i) {
#pragma unroll
    for (int j = 0; j < kTileN / 2; ++j) {
      asm volatile("" : "+f"(sums[i][j])::"memory");  // no reader moves before the wait
      if (kSplits > 1 && slices == 0) sums[i][j] = 0;
    }
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

// Ping-pong: consumers multiply in turn. A consumer that waited for a stage two rounds ahead would
// take the parity of the round before for it.
BRRR_FN void wait_for_turn(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(2 + group), "n"(kConsumerThreads) : "memory");
}
BRRR_FN void give_turn_to(int group) {
  asm volatile("bar.arrive %0, %1;" ::"r"(2 + group), "n"(kConsumerThreads) : "memory");
}

BRRR_FN void consume_tiles(const TileProblem& p, StagedEpilogue& epilogue, const Shared& shared,
                           const Role& role, i32 first, i32 tiles, i32 step) {
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const int block = kPingPong ? 0 : group * kBlocksM;
  const Depth depth(p, role);
  Ring ring;
  i32 stride = step;
  if constexpr (kPingPong) {
    if (group == 1) give_turn_to(0);
    ring.skip(group * depth.slices);
    first += group * step;
    stride = 2 * step;
  }
  for (i32 index = first; index < tiles; index += stride) {
    const Tile tile(p, index, role);
    Sums sums;
    const StagedEpilogue::Place place = epilogue.place(tile, block, role);
    epilogue.begin(place);
    if constexpr (kPingPong) wait_for_turn(group);
    multiply_tile(shared, role, depth.slices, block, ring, sums);
    if constexpr (kPingPong) {
      if (index + step < tiles) give_turn_to(1 - group);
    }
    const StagedEpilogue::BoxColumns columns = epilogue.columns(place, 0);
    finish_products(shared, role, depth.slices, ring, sums);
    if constexpr (kSplits > 1) {
      JoinedSums joined;
      join_splits(shared, role, sums, joined);
      epilogue.run(place, joined, columns);
    } else {
      epilogue.run(place, sums, columns);
    }
    if constexpr (kPingPong) ring.skip(depth.slices);
  }
  if (threadIdx.x % 32 == 0) stores_wait<0>();
}

extern "C" __global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads,
                                                                        kBlocksPerMultiprocessor)
    matmul_tiles(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 const __grid_constant__ StagedMaps maps, const __grid_constant__ TileProblem p,
                 const __grid_constant__ Epilogue epilogue) {
  wait_for_previous_kernel();
  extern __shared__ u8 dynamic[];
  __shared__ u64 barriers[2 * kStages + kConsumerThreads / 32 * kBuffers];
  Shared shared;
  shared.stages = (shared_address(dynamic) + 1023) & ~1023u;  // swizzled groups of rows are aligned
  shared.full = shared_address(barriers);
  shared.empty = shared.full + 8 * kStages;
  const Role role;
  const bool producer = threadIdx.x >= kConsumerThreads;
  if (threadIdx.x == kConsumerThreads) {
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(shared.full + 8 * stage, 1);
      barrier_init(shared.empty + 8 * stage, kGroupWarps * (kPingPong ? 1 : kConsumers) * kSharers);
    }
    for (int i = 0; i < kConsumerThreads / 32 * kBuffers; ++i)
      barrier_init(shared.empty + 8 * (kStages + i), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (kSharers > 1) {  // nobody loads into a block, or arrives there, before its barriers are ready
    cluster_arrive();
    cluster_wait();
  }
  const i32 tiles = p.tiles_m * p.tiles_n * p.batches;
  const i32 first = blockIdx.x / kCluster, step = gridDim.x / kCluster;
  if (producer) {
    give_registers();
    if (threadIdx.x == kConsumerThreads)
      load_tiles(map_a, map_b, p, shared, role, first, tiles, step);
    __syncwarp();
    if (kSplits > 1) {
      cluster_arrive();
      cluster_wait();
    }
  } else {
    take_registers();
    const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    StagedEpilogue staged = {epilogue, maps, p,
                             shared.stages + kStages * kStageBytes + warp * kWarpStagingBytes,
                             shared.empty + 8 * (kStages + warp * kBuffers)};
    consume_tiles(p, staged, shared, role, first, tiles, step);
  }
  if (kCluster > 1) {  // other blocks may still read this one's shared memory, or arrive in it
    __syncwarp();
    kSharers > 1 ? cluster_arrive() : cluster_arrive_relaxed();  // arrivals are stores
    cluster_wait();
  }
}
