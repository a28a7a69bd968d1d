// From the accumulators of matmul_tiles.cu to memory: the epilogue of one product.

// Of the staged tensors: inputs, then outputs.
typedef Epilogue::Staged Staged;
constexpr int kInputs = Epilogue::kInputs, kOutputs = Epilogue::kOutputs;
struct StagedMaps {
  TensorMap of[kInputs + kOutputs > 0 ? kInputs + kOutputs : 1];
};
constexpr int kTileRowBytes = kTileColumns * sizeof(Staged);
constexpr int kBoxRowBytes = kTileRowBytes % 128 == 0 ? 128 : kTileRowBytes % 64 == 0 ? 64 : 32;
constexpr int kBoxColumns = kBoxRowBytes / sizeof(Staged);
static_assert(kTileColumns % kBoxColumns == 0 && kBoxColumns % 16 == 0, "boxes cover the tile");

// A warp's boxes of staged tensors, and the epilogue of its sums. Boxes of inputs are loaded two
// ahead; boxes of outputs are stored while the next are computed.
struct StagedEpilogue {
  static constexpr int kBoxesAcross = kTileColumns / kBoxColumns;
  // Else a tile would begin in the buffer that the last one of another product still stores.
  static_assert(kProducts == 1 || kBlocksM * kBoxesAcross % kBuffers == 0, "tiles end in step");
  const Epilogue& epilogue;
  const StagedMaps& maps;
  const TileProblem& p;
  u32 boxes, loaded;  // addresses: this warp's boxes, and the barriers of its input boxes
  u32 turn = 0;       // boxes done

  BRRR_SCALAR_FN u32 box(int tensor) const {
    return boxes + (tensor * kBuffers + turn % kBuffers) * kBoxBytes;
  }
  // Whether a box has the columns of D as its rows: of f32, 16 lines of 64 bytes.
  static BRRR_SCALAR_FN bool is_transposed(int tensor) {
    return tensor < kMostOutputs ? Epilogue::kTransposedOutputs >> tensor & 1
                                 : Epilogue::kTransposedInputs >> (tensor - kMostOutputs) & 1;
  }
  // Where 16 bytes of a box are: rows are swizzled as the copy engine does it.
  static BRRR_SCALAR_FN u32 swizzled(u32 offset) {
    return offset ^ (offset >> 7 & (kBoxRowBytes / 16 - 1)) << 4;
  }

  struct Place {
    i32 batch, inner, outer, row, col;  // of the warp's first element
  };
  BRRR_SCALAR_FN Place place(const Tile& tile, int block, const Role& role) const {
    Place at;
    at.batch = tile.batch;
    at.outer = tile.batch / p.inner_batches;
    at.inner = tile.batch - at.outer * p.inner_batches;
    at.row = tile.row + block * 64 + threadIdx.x % 128 / 32 * 16;
    at.col = tile.col + role.split * kTileColumns;
    return at;
  }

  BRRR_SCALAR_FN void load_inputs(const Place& at, int index, u32 when) const {
    if constexpr (kInputs > 0) {
      const u32 barrier = loaded + when % kBuffers * 8;
      if (threadIdx.x % 32 == 0) {
        barrier_expect(barrier, kInputs * 16 * kBoxRowBytes);
#pragma unroll
        for (int i = 0; i < kInputs; ++i) {
          const int tensor = kMostOutputs + i;
          const i32 row = at.row + index / kBoxesAcross * 64,
                    col = at.col + index % kBoxesAcross * kBoxColumns;
          const bool transposed = is_transposed(tensor);
          load_box<false>(maps.of[i], boxes + (tensor * kBuffers + when % kBuffers) * kBoxBytes,
                          barrier, transposed ? row : col, transposed ? col : row, at.inner,
                          at.outer, 0);
        }
      }
    }
  }
  // The first boxes, before the products.
  BRRR_SCALAR_FN void begin(const Place& at) const {
#pragma unroll
    for (int i = 0; i < kBuffers && i < kBlocksM * kBoxesAcross; ++i) load_inputs(at, i, turn + i);
  }

  // Two rows of two groups of eight columns: four pairs of the box, in the order of ldmatrix.
  BRRR_SCALAR_FN u32 pairs_at(int tensor, int column) const {
    const u32 lane = threadIdx.x % 32;
    if constexpr (sizeof(Staged) == 2)
      return box(tensor) +
             swizzled(line_of_row(lane % 16) * kBoxRowBytes + column * 2 + lane / 16 * 16);
    return box(tensor);
  }
  static BRRR_SCALAR_FN u32 pair_offset(int pair, int column) {
    const u32 lane = threadIdx.x % 32;
    return swizzled(line_of_row(lane / 4 + pair % 2 * 8) * kBoxRowBytes +
                    (column + pair / 2 * 8) * 4 + lane % 4 / 2 * 16) +
           lane % 2 * 8;
  }
  // Of a transposed box, an element of a pair of columns: 16 bytes are four lines, swizzled by
  // groups of two columns. Lanes begin with either column, so that no two are in one bank.
  static BRRR_SCALAR_FN int first_of_pair() {
    const int t = threadIdx.x % 4;
    return (t ^ t >> 1) & 1;
  }
  BRRR_SCALAR_FN u32 transposed_at(int tensor, int pair, int column, int turn) const {
    const u32 lane = threadIdx.x % 32, line = line_of_row(lane / 4 + pair % 2 * 8);
    const u32 first =
        (lane % 4 * 2 + first_of_pair()) * 64 + (line / 4 ^ lane % 4) * 16 + line % 4 * 4;
    return box(tensor) + (column + pair / 2 * 8) * 64 + (first ^ turn * 64);
  }
  BRRR_SCALAR_FN void read_transposed(int tensor, int column, float (&pairs)[4][2]) const {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      float got[2];
#pragma unroll
      for (int turn = 0; turn < 2; ++turn)
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(got[turn])
                     : "r"(transposed_at(tensor, pair, column, turn))
                     : "memory");
      pairs[pair][0] = first_of_pair() ? got[1] : got[0];
      pairs[pair][1] = first_of_pair() ? got[0] : got[1];
    }
  }
  BRRR_SCALAR_FN void write_transposed(int tensor, int column, const float (&pairs)[4][2]) const {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
#pragma unroll
      for (int turn = 0; turn < 2; ++turn)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(transposed_at(tensor, pair, column, turn)),
                     "f"((first_of_pair() ^ turn) ? pairs[pair][1] : pairs[pair][0])
                     : "memory");
    }
  }
  template <class T>
  BRRR_SCALAR_FN void read(int tensor, int column, float (&pairs)[4][2]) const {
    if (sizeof(T) == 4 && is_transposed(tensor)) return read_transposed(tensor, column, pairs);
    const u32 from = pairs_at(tensor, column);
    if constexpr (sizeof(T) == 2) {
      u32 words[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                   : "r"(from)
                   : "memory");
#pragma unroll
      for (int i = 0; i < 8; ++i) pairs[i / 2][i % 2] = widen_half(T(), words[i / 2], i % 2);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(pairs[i][0]), "=f"(pairs[i][1])
                     : "r"(from + pair_offset(i, column))
                     : "memory");
    }
  }
  template <class T>
  BRRR_SCALAR_FN void write(int tensor, int column, const float (&pairs)[4][2]) const {
    if (sizeof(T) == 4 && is_transposed(tensor)) return write_transposed(tensor, column, pairs);
    const u32 to = pairs_at(tensor, column);
    if constexpr (sizeof(T) == 2) {
      u32 words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = narrow_pair(T(), pairs[i][0], pairs[i][1]);
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                   "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                   : "memory");
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + pair_offset(i, column)),
                     "f"(pairs[i][0]), "f"(pairs[i][1])
                     : "memory");
    }
  }

  // What the epilogue knows of a box's columns, group by group: loaded one box ahead.
  struct BoxColumns {
    Epilogue::Columns of[kBoxColumns / 8];
  };
  BRRR_SCALAR_FN i32 columns_left(i32 col) const { return max(0, min(2, p.n - col)); }
  BRRR_SCALAR_FN BoxColumns columns(const Place& at, int index) const {
    const i32 col = at.col + index % kBoxesAcross * kBoxColumns + threadIdx.x % 4 * 2;
    BoxColumns columns;
#pragma unroll
    for (int i = 0; i < kBoxColumns / 8; ++i)
      columns.of[i] = epilogue.columns(at.batch, col + i * 8, columns_left(col + i * 8));
    return columns;
  }

  // 16 columns from `column` of the box on; `sums` are those of two groups of eight.
  BRRR_SCALAR_FN void apply(const Place& at, i32 row0, i32 col0, int column,
                            const BoxColumns& columns, const float* sums) const {
    constexpr int kIn = kInputs > 0 ? kInputs : 1, kOut = kOutputs > 0 ? kOutputs : 1;
    float inputs[kIn][4][2], outputs[kOut][4][2];
#pragma unroll
    for (int i = 0; i < kInputs; ++i) read<Staged>(kMostOutputs + i, column, inputs[i]);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const int group = pair / 2;
      const i32 row = row0 + line_of_row(pair % 2 * 8 + threadIdx.x % 32 / 4);
      const i32 col = col0 + column + group * 8 + threadIdx.x % 4 * 2;
      const float own[2] = {sums[pair * 2], sums[pair * 2 + 1]};
      float in[kIn][2], out[kOut][2];
#pragma unroll
      for (int i = 0; i < 2 * kInputs; ++i) in[i / 2][i % 2] = inputs[i / 2][pair][i % 2];
      epilogue.apply(at.batch, row, col, row < p.m ? columns_left(col) : 0,
                     columns.of[column / 8 + group], own, in, out);
#pragma unroll
      for (int i = 0; i < 2 * kOutputs; ++i) outputs[i / 2][pair][i % 2] = out[i / 2][i % 2];
    }
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) write<Staged>(i, column, outputs[i]);
  }

  template <class Joined>
  BRRR_SCALAR_FN void run(const Place& at, const Joined& sums, BoxColumns now) {
    const bool leads = threadIdx.x % 32 == 0;
#pragma unroll
    for (int index = 0; index < kBlocksM * kBoxesAcross; ++index, ++turn) {
      const i32 row = at.row + index / kBoxesAcross * 64,
                col = at.col + index % kBoxesAcross * kBoxColumns;
      BoxColumns next = now;
      if (index + 1 < kBlocksM * kBoxesAcross) next = columns(at, index + 1);
      if (kInputs > 0) barrier_wait(loaded + turn % kBuffers * 8, turn / kBuffers & 1);
      if (kOutputs > 0) {
        if (leads) stores_wait<kBuffers - 1>();
        __syncwarp();
      }
#pragma unroll
      for (int column = 0; column < kBoxColumns; column += 16)
        apply(at, row, col, column, now,
              sums[index / kBoxesAcross] + (index % kBoxesAcross * kBoxColumns + column) / 2);
      if (kInputs + kOutputs > 0) {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
      }
      if (kOutputs > 0 && leads) {
#pragma unroll
        for (int i = 0; i < kOutputs; ++i)
          store_box(maps.of[kInputs + i], box(i), is_transposed(i) ? row : col,
                    is_transposed(i) ? col : row, at.inner, at.outer);
        stores_commit();
      }
      if (index + kBuffers < kBlocksM * kBoxesAcross)
        load_inputs(at, index + kBuffers, turn + kBuffers);
      now = next;
    }
  }
};

// Splits: each block joins the sums of its share of the tile's columns, which keep the layout of
// the accumulators: it publishes the others' shares and reads its own from them. Four registers of
// a thread are one group of eight columns.
typedef float JoinedSums[kBlocksM][kTileColumns / 2];

BRRR_FN void publish_sums(const Shared& shared, const Role& role, const Sums& sums,
                          JoinedSums& own) {
  constexpr int kGroups = kTileN / 8, kJoined = kTileColumns / 8;
  const u32 to = shared.stages + threadIdx.x * 16;
  asm volatile("bar.sync 1, %0;" ::"n"(kConsumerThreads) : "memory");  // nobody reads stages
#pragma unroll
  for (int i = 0; i < kBlocksM * kGroups; ++i) {
    const int block = i / kGroups, group = i % kGroups;
    const float* four = sums[block] + group * 4;
    if (group / kJoined == role.split) {
#pragma unroll
      for (int j = 0; j < 4; ++j) own[block][group % kJoined * 4 + j] = four[j];
    } else {
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * kConsumerThreads * 16),
                   "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3])
                   : "memory");
    }
  }
}

// Four floats of another block's shared memory; unless `there`, they stay as they are.
BRRR_FN void load_four(float* four, u32 from, bool there) {
  asm volatile(
      "{ .reg .pred there; setp.ne.u32 there, %5, 0; "
      "@there ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4]; }"
      : "+f"(four[0]), "+f"(four[1]), "+f"(four[2]), "+f"(four[3])
      : "r"(from), "r"(u32(there))
      : "memory");
}

BRRR_FN void join_splits(const Shared& shared, const Role& role, const Sums& sums,
                         JoinedSums& joined) {
  constexpr int kGroups = kTileN / 8, kJoined = kTileColumns / 8;
  publish_sums(shared, role, sums, joined);
  cluster_arrive();
  cluster_wait();
  float parts[kSplits][kBlocksM * kJoined][4];
#pragma unroll
  for (int split = 0; split < kSplits; ++split) {
    const u32 from = address_in(shared.stages + threadIdx.x * 16, split) +
                     role.split * kJoined * kConsumerThreads * 16;
#pragma unroll
    for (int i = 0; i < kBlocksM * kJoined; ++i) {
      float* four = parts[split][i];
#pragma unroll
      for (int j = 0; j < 4; ++j) four[j] = joined[i / kJoined][i % kJoined * 4 + j];
      load_four(four, from + (i / kJoined * kGroups + i % kJoined) * kConsumerThreads * 16,
                split != role.split);
    }
  }
#pragma unroll
  for (int i = 0; i < kBlocksM * kJoined * 4; ++i) {
    float sum = parts[0][i / 4][i % 4];
#pragma unroll
    for (int split = 1; split < kSplits; ++split) sum += parts[split][i / 4][i % 4];
    joined[i / 4 / kJoined][i / 4 % kJoined * 4 + i % 4] = sum;
  }
}
