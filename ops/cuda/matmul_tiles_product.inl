// One product of a launch of matmul_tiles.cu: what its producer loads, and what its consumers
// multiply and hand to the epilogue.

static_assert(kReducedVectors == 0 || kMnMajorA, "adjacent lines are a row of a stage");
static_assert(!kMnMajorB || sizeof(Element) == 2, "wgmma reads TF32 along k");

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

// The reductions of lines of A that a block computes beside the product: of all blocks that load
// the same lines, each reduces kShare vectors of 16 bytes. A warp has vectors of its own, each in a
// group of lanes that takes consecutive rows of a stage. Without a share nothing.
template <class E, int kShare>
struct LineSums {
  static constexpr int kVector = 16 / sizeof(Element);
  static constexpr int kVectorsOfColumn = TileA::kColumnRowBytes / 16;
  static constexpr int kVectorsOfWarp = kShare > kReducerWarps ? kShare / kReducerWarps : 1;
  static constexpr int kLanes = 32 / kVectorsOfWarp, kRounds = kSlice / kLanes;
  static constexpr int kLoads = kRounds < 4 ? kRounds : 4;  // in flight
  typedef typename E::Sum Sum;
  bool has_share;
  int vector, row;  // this lane's
  Sum of[kVector];

  BRRR_SCALAR_FN LineSums(int block) {
    const int thread = threadIdx.x - kConsumerThreads - 32, lane = thread % 32;
    vector = block * kShare + thread / 32 * kVectorsOfWarp + lane / kLanes;
    row = lane % kLanes;
    has_share = thread / 32 * kVectorsOfWarp < kShare && vector < kTileM / kVector;
#pragma unroll
    for (int i = 0; i < kVector; ++i) of[i] = E::identity();
  }

  // `rows`: of the stage that exist.
  BRRR_SCALAR_FN void add(u32 a, i32 rows) {
    if (!has_share) return;
    a += vector / kVectorsOfColumn * TileA::kColumnBytes;
    rows >= kSlice ? add_rows<true>(a, rows) : add_rows<false>(a, rows);
  }
  template <bool kAll>
  BRRR_SCALAR_FN void add_rows(u32 a, i32 rows) {
#pragma unroll 1
    for (int from = row; from < kSlice; from += kLoads * kLanes) {
      u32 got[kLoads][4];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int at = from + i * kLanes;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(got[i][0]), "=r"(got[i][1]), "=r"(got[i][2]), "=r"(got[i][3])
                     : "r"(a + at * TileA::kColumnRowBytes + swizzled(at)));
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (!kAll && from + i * kLanes >= rows) continue;
#pragma unroll
        for (int j = 0; j < kVector; ++j)
          of[j] = E::combine(of[j], E::map(element(Element(), got[i], j)));
      }
    }
  }
  // Where this lane's vector is in row `row` of its column.
  BRRR_SCALAR_FN int swizzled(int row) const {
    return (vector ^ row * TileA::kColumnRowBytes / 128) % kVectorsOfColumn * 16;
  }
  template <class Half>
  static BRRR_SCALAR_FN float element(Half type, const u32 (&words)[4], int i) {
    return widen_half(type, words[i / 2], i % 2);
  }
  static BRRR_SCALAR_FN float element(float, const u32 (&words)[4], int i) {
    return __uint_as_float(words[i]);
  }

  // Joins the reductions of a group's lanes in one order, and stores those of lines below `end`.
  BRRR_SCALAR_FN void store(const E& epilogue, i32 first, i32 end, i32 depth) {
    if (!has_share) return;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
#pragma unroll
      for (int across = kLanes / 2; across > 0; across /= 2)
        of[i] = E::combine(of[i], __shfl_xor_sync(~0u, of[i], across));
      const i32 line = first + vector * kVector + i;
      if (row == 0 && line < end) epilogue.store_line(line, of[i], depth);
    }
  }
};
template <class E>
struct LineSums<E, 0> {
  BRRR_SCALAR_FN LineSums(int) {}
  BRRR_SCALAR_FN void add(u32, i32) {}
  BRRR_SCALAR_FN void store(const E&, i32, i32, i32) {}
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

  // Reduces lines of A, and releases the stages of every tile.
  BRRR_SCALAR_FN void reduce(const Shared& shared, const Role& role, i32 index, Ring& ring) const {
    const Tile tile(p, index, role);
    LineSums<Epilogue, kReducedVectors> sums(tile.col / kTileN);
#pragma unroll 1
    for (i32 slice = 0; slice < slices(role); ++slice, ring.advance()) {
      barrier_wait(shared.full + 8 * ring.stage, ring.parity);
      sums.add(shared.a(ring.stage), p.k - slice * kSlice);
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(shared.empty + 8 * ring.stage);
    }
    sums.store(epilogue.epilogue, tile.row, p.m, p.k);
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
