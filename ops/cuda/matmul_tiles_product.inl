// One product of a launch of matmul_tiles.cu: what its producer loads, and what its consumers
// multiply and hand to the epilogue.

typedef OperandTile<kMnMajorA, kTileM, kClusterN> TileA;
typedef OperandTile<kMnMajorB, kTileN, kClusterM> TileB;
static_assert(!kReduces || (kMnMajorA && sizeof(Element) == 2), "64 lines are a row of a stage");

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

// What a thread of a reducer has of the lines of a tile of A: 16 bytes of every kDown-th row of a
// stage, whose 128 bytes are 64 lines. Without kReduces nothing.
template <class E, bool kActive>
struct LineSums {
  BRRR_SCALAR_FN void add(u32, i32) {}
  BRRR_SCALAR_FN void store(const E&, i32, i32, i32) {}
};
template <class E>
struct LineSums<E, true> {
  static constexpr int kVector = 16 / sizeof(Element), kVectors = 64 / kVector;
  static constexpr int kThreads = 32 * kReducerWarps, kDown = kThreads / kVectors;
  typedef typename E::Sum Sum;
  Sum of[kTileM / 64][kVector];

  BRRR_SCALAR_FN LineSums() {
#pragma unroll
    for (int i = 0; i < kTileM / 64 * kVector; ++i) of[i / kVector][i % kVector] = E::identity();
  }
  static BRRR_SCALAR_FN int thread() { return threadIdx.x - kConsumerThreads - 32; }

  // `rows`: of the stage that exist. All loads of 64 lines are under way before the first is used.
  BRRR_SCALAR_FN void add(u32 a, i32 rows) {
    constexpr int kRounds = (kSlice + kDown - 1) / kDown;
    const int vector = thread() % kVectors, first = thread() / kVectors;
    rows = min(rows, kSlice);
#pragma unroll
    for (int block = 0; block < kTileM / 64; ++block) {
      union {
        u32 words[4];
        Element elements[kVector];
      } got[kRounds];
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        const int row = min(first + i * kDown, kSlice - 1);
        asm volatile(
            "ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(got[i].words[0]), "=r"(got[i].words[1]), "=r"(got[i].words[2]),
              "=r"(got[i].words[3])
            : "r"(a + block * TileA::kColumnBytes + row * kRowBytes + ((vector ^ row % 8) << 4)));
      }
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        if (first + i * kDown >= rows) continue;
#pragma unroll
        for (int j = 0; j < kVector; ++j)
          of[block][j] = E::combine(of[block][j], E::map(widen(got[i].elements[j])));
      }
    }
  }

  // Joins the sums of lanes, then of warps, in one order, and stores those of lines below `end`.
  BRRR_SCALAR_FN void store(const E& epilogue, i32 first, i32 end, i32 depth) {
    __shared__ Sum parts[kReducerWarps][kTileM];
    const int lane = thread() % 32;
#pragma unroll
    for (int i = 0; i < kTileM / 64 * kVector; ++i) {
      Sum sum = of[i / kVector][i % kVector];
#pragma unroll
      for (int step = kVectors; step < 32; step *= 2)
        sum = E::combine(sum, __shfl_xor_sync(~0u, sum, step));
      if (lane < kVectors)
        parts[thread() / 32][i / kVector * 64 + lane * kVector + i % kVector] = sum;
    }
    asm volatile("bar.sync 4, %0;" ::"n"(kThreads) : "memory");
    for (int line = thread(); line < min(kTileM, end - first); line += kThreads) {
      Sum joined = parts[0][line];
#pragma unroll
      for (int i = 1; i < kReducerWarps; ++i) joined = E::combine(joined, parts[i][line]);
      epilogue.store_line(first + line, joined, depth);
    }
    asm volatile("bar.sync 4, %0;" ::"n"(kThreads) : "memory");
  }
};

// An argument of the kernel. Its members refer to other arguments.
struct Product {
  const TensorMap &map_a, &map_b;
  const TileProblem& p;
  StagedEpilogue epilogue;

  BRRR_SCALAR_FN i32 tiles() const { return p.tiles_m * p.tiles_n * p.batches; }
  BRRR_SCALAR_FN i32 slices(const Role& role) const { return Depth(p, role).slices; }

  BRRR_SCALAR_FN void load(const Shared& shared, const Role& role, i32 index, Ring& ring) const {
    const Depth depth(p, role);
    u32 sharers_a = 0;
#pragma unroll
    for (int n = 0; n < kClusterN; ++n) sharers_a |= 1u << (role.m + n * kClusterM);
    const u32 sharers_b = ((1u << kClusterM) - 1) << role.n * kClusterM;
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

  // Reduces the lines of A in the tile of the first columns, and releases the stages of every tile.
  BRRR_SCALAR_FN void reduce(const Shared& shared, const Role& role, i32 index, Ring& ring) const {
    const Tile tile(p, index, role);
    const bool reduces = tile.col == 0;
    LineSums<Epilogue, kReduces> sums;
#pragma unroll 1
    for (i32 slice = 0; slice < slices(role); ++slice, ring.advance()) {
      barrier_wait(shared.full + 8 * ring.stage, ring.parity);
      if (reduces) sums.add(shared.a(ring.stage), p.k - slice * kSlice);
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(shared.empty + 8 * ring.stage);
    }
    if (reduces) sums.store(epilogue.epilogue, tile.row, p.m, p.k);
  }

  // The boxes of a consumer's warp.
  BRRR_SCALAR_FN void use(const Shared& shared, u32 warp, int number) {
    epilogue.boxes = shared.boxes(warp);
    epilogue.loaded = shared.loaded(number, warp);
  }

  BRRR_SCALAR_FN void consume(const Shared& shared, const Role& role, i32 index, int group,
                              bool is_last, Ring& ring) {
    const int block = kPingPong ? 0 : group * kBlocksM;
    const i32 depth = slices(role);
    Sums sums;
    const StagedEpilogue::Place place = epilogue.place(Tile(p, index, role), block, role);
    epilogue.begin(place);
    if constexpr (kPingPong) wait_for_turn(group);
    multiply_tile(shared, role, depth, block, ring, sums);
    if constexpr (kPingPong) {
      if (!is_last) give_turn_to(1 - group);
    }
    const StagedEpilogue::BoxColumns columns = epilogue.columns(place, 0);
    finish_products(shared, role, depth, ring, sums);
    if constexpr (kSplits > 1) {
      JoinedSums joined;
      join_splits(shared, role, sums, joined);
      epilogue.run(place, joined, columns);
    } else {
      epilogue.run(place, sums, columns);
    }
  }
};
