// Attention: out = softmax(scale q k^T) v over rows of queries and of keys, and its gradient.
// Scores and weights stay in registers, in f32: the forward pass keeps one number a row, the
// logarithm of the sum of its exponentials, from which the gradient's kernels recompute the
// weights.
//
// Expects the typedef Element (f16, bf16, or float: TF32), the constants kWidth (of a row), kTile
// (rows that are loaded at a time) and kMasked, and attention_products.inl.
//
// Every block has 64 rows; the next tile of the other operands is loaded while one is used. Sums
// have a fixed order.

constexpr int kMostTiles = 1024;
constexpr float kLog2e = 1.4426950408889634f;

// Rows of a tensor [outer, inner, rows, kWidth]; strides in elements.
struct RowsOf {
  Element* data;
  i64 outer, inner, row;
};
// The mask (true where a query attends to a key), and the classes of its tiles (attention_mask.cu).
struct MaskOf {
  const bool* data;
  i64 outer, inner, row, column;
  const i32* tiles;
  i64 tiles_outer, tiles_inner, tiles_row, tiles_column;
};
struct Attention {
  RowsOf q, k, v, out;
  MaskOf mask;
  float* log_sum;  // of the exponentials of a row of scores, to base 2
  float scale;     // of the scores
  i32 queries, keys, inner_batches;
};
struct AttentionGradient {
  Attention of;
  RowsOf dout, dq, dk, dv;
  float* delta;    // the sum over a row of weights times their gradients
  float dq_scale;  // in place of `scale`
};
enum { kEmpty, kPartial, kWhole };  // tiles of a mask

// --- Masks ---

// The tiles of a block that are not empty, in order.
struct Tiles {
  u16 number[kMasked ? kMostTiles : 1];
  bool whole[kMasked ? kMostTiles : 1];
  i32 count;
};
// Tiles of keys of a block of queries (kOfKeys), or of queries of a block of keys.
template <bool kOfKeys>
BRRR_FN void find_tiles(Tiles& tiles, const Attention& a, i32 outer, i32 inner, i32 block) {
  const i32 count = ((kOfKeys ? a.keys : a.queries) + kTile - 1) / kTile;
  if (warp() == 0) {
    i32 kept = kMasked ? 0 : count;
    const i32* of = a.mask.tiles + outer * a.mask.tiles_outer + inner * a.mask.tiles_inner +
                    block * (kOfKeys ? a.mask.tiles_row : a.mask.tiles_column);
    const i64 stride = kOfKeys ? a.mask.tiles_column : a.mask.tiles_row;
    for (i32 first = 0; kMasked && first < count; first += 32) {
      const i32 tile = first + lane();
      const i32 found = tile < count ? of[tile * kTile / kRows * stride] : i32(kEmpty);
      const u32 lanes = __ballot_sync(~0u, found != kEmpty);
      if (found != kEmpty) {
        const i32 at = kept + __popc(lanes & ((1u << lane()) - 1));
        tiles.whole[at] = found == kWhole;
        tiles.number[at] = u16(tile);
      }
      kept += __popc(lanes);
    }
    if (lane() == 0) tiles.count = kept;
  }
  __syncthreads();
}
BRRR_FN i32 number_of(const Tiles& tiles, i32 i) { return kMasked ? tiles.number[i] : i; }

// Calls `start(tile, stage)` to begin the copy of a tile to one of two stages, and
// `use(tile, stage, is_whole)` when it has arrived.
template <class Start, class Use>
BRRR_FN void for_tiles(const Tiles& tiles, const Start& start, const Use& use) {
  const i32 count = tiles.count;
  __syncthreads();  // all threads have finished reading the stages
  if (count > 0) start(number_of(tiles, 0), 0);
  end_of_group();
  for (i32 i = 0; i < count; ++i) {
    if (i + 1 < count) start(number_of(tiles, i + 1), (i + 1) % 2);
    end_of_group();
    wait_for_groups<1>();
    use(number_of(tiles, i), i % 2, !kMasked || tiles.whole[i]);
    __syncthreads();
  }
}

// --- Scores ---

BRRR_FN float exp2_of(float a) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}

// Makes scores that are masked or outside minus infinity. The first score is of row `row` and
// column `column`; kOfKeys: columns are keys.
template <bool kOfKeys>
BRRR_FN void mask_scores(Sums (&s)[kGroups], const Attention& a, const bool* mask, bool whole,
                         i32 row, i32 column) {
  const i32 bound = kOfKeys ? a.keys : a.queries, others = kOfKeys ? a.queries : a.keys;
  const bool inside = column + kTile <= bound;
  if (whole && inside) return;
  const bool has_pairs = kMasked && kOfKeys && !whole && inside && row + kRows <= others &&
                         a.mask.column == 1 && ((a.mask.row | i64(mask)) & 1) == 0;
  row += warp() * 16 + lane() / 4;
  column += lane() % 4 * 2;
  if (has_pairs) {  // two neighbours in one load
    const bool* of = mask + row * a.mask.row + column;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const u32 kept = *reinterpret_cast<const u16*>(of + j / 2 * 8 * a.mask.row + group * 8);
        if (!(kept & 0xff)) s[group][j] = -BRRR_INFINITY;
        if (!(kept >> 8)) s[group][j + 1] = -BRRR_INFINITY;
      }
    }
    return;
  }
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const i32 r = row + j / 2 * 8, c = column + group * 8 + j % 2;
      bool kept = c < bound;
      if (kMasked && !whole && kept && r < others)
        kept = mask[(kOfKeys ? r : c) * a.mask.row + (kOfKeys ? c : r) * a.mask.column];
      if (!kept) s[group][j] = -BRRR_INFINITY;
    }
  }
}

template <class F>
BRRR_FN float over_row(float a, const F& f) {  // the four lanes of a row
  a = f(a, __shfl_xor_sync(~0u, a, 1));
  return f(a, __shfl_xor_sync(~0u, a, 2));
}
BRRR_FN void scale_sums(Sums (&c)[kColumns], float by) {
#pragma unroll
  for (int group = 0; group < kColumns; ++group) {
#pragma unroll
    for (int j = 0; j < 4; ++j) c[group][j] *= by;
  }
}
BRRR_FN float sum_of_row(float a) {
  return over_row(a, [](float x, float y) { return x + y; });
}

// Replaces a tile's scores of a lane's two rows by their exponentials, relative to the largest
// score so far. If that rises, the caller must multiply its sums by `scale`.
BRRR_FN void exponentials_of(Sums (&s)[kGroups], float (&scale)[2], float (&largest)[2],
                             float (&sum)[2], float to_base_2) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = largest[r];
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
      most = fmaxf(most, fmaxf(s[group][2 * r], s[group][2 * r + 1]));
    most = over_row(most, [](float x, float y) { return fmaxf(x, y); });
    const float base = most == -BRRR_INFINITY ? 0.0f : most * to_base_2;
    scale[r] = exp2_of(largest[r] * to_base_2 - base);
    largest[r] = most;
    sum[r] *= scale[r];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int j = 2 * r; j < 2 * r + 2; ++j) {
        s[group][j] = exp2_of(__fmaf_rn(s[group][j], to_base_2, -base));
        sum[r] += s[group][j];
      }
    }
  }
}

// --- Kernels ---

struct Shared {
  Element stages[2][2][kTile * kTilePitch];  // of two operands, twice
  Element rows[kSwizzled ? 2 : 1][kSwizzled ? kRows * kTilePitch : kUnit];
  float of_queries[2][2][kTile];  // by stage: log_sum and delta of a tile's queries
  // Where rows of the block are loaded to; unswizzled they are in registers before tiles come.
  BRRR_SCALAR_FN Element* block(int i) { return kSwizzled ? rows[i] : stages[0][0]; }
};
BRRR_FN Shared& aligned_shared() {
  extern __shared__ uint4 dynamic[];
  const u32 address = u32(__cvta_generic_to_shared(dynamic));
  return *reinterpret_cast<Shared*>(reinterpret_cast<u8*>(dynamic) + (-address & 1023));
}

// The batch and the 64 rows of a block. Blocks of all batches come before those of the next rows.
struct RowBlock {
  i32 outer, inner, number, first;
  i64 batch;
  BRRR_SCALAR_FN RowBlock(const Attention& a, i32 of) {
    outer = i32(blockIdx.x) / a.inner_batches;
    inner = i32(blockIdx.x) % a.inner_batches;
    number = of;
    first = of * kRows;
    batch = blockIdx.x;
  }
  BRRR_SCALAR_FN Element* matrix(const RowsOf& x) const {
    return x.data + outer * x.outer + inner * x.inner;
  }
  BRRR_SCALAR_FN const bool* mask(const MaskOf& m) const {
    return m.data + outer * m.outer + inner * m.inner;
  }
};
// Under a causal mask the last queries see the most keys: they begin first.
BRRR_FN i32 block_of_queries() { return i32(gridDim.y - 1 - blockIdx.y); }

// Blocks of a multiprocessor. Warps wait for copies and for wgmma most of the time, so rows of 64
// elements are worth 128 registers a thread and four blocks. The gradients of keys and values are
// two accumulators, with which three blocks fit.
constexpr int kBlocks = kSwizzled && kWidth == 64 ? 4 : 1;

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    attention(const __grid_constant__ Attention a) {
  wait_for_previous_kernel();
  __shared__ Tiles tiles;
  Shared& shared = aligned_shared();
  const RowBlock block(a, block_of_queries());
  const Element *k = block.matrix(a.k), *v = block.matrix(a.v);
  const bool* mask = block.mask(a.mask);
  BlockRows q;
  load_block(q, shared.block(0), block.matrix(a.q), a.q.row, block.first, a.queries);
  find_tiles<true>(tiles, a, block.outer, block.inner, block.number);

  const float to_base_2 = a.scale * kLog2e;
  float largest[2] = {-BRRR_INFINITY, -BRRR_INFINITY}, sum[2] = {};
  Sums out[kColumns] = {};
  for_tiles(
      tiles,
      [&](i32 tile, int stage) {
        start_rows<kTile>(shared.stages[stage][0], k, a.k.row, tile * kTile, a.keys);
        start_rows<kTile>(shared.stages[stage][1], v, a.v.row, tile * kTile, a.keys);
      },
      [&](i32 tile, int stage, bool whole) {
        Sums s[kGroups];
        start_products();
        multiply_by_rows(s, q, shared.stages[stage][0]);
        finish_products(s);
        mask_scores<true>(s, a, mask, whole, block.first, tile * kTile);
        float scale[2];
        exponentials_of(s, scale, largest, sum, to_base_2);
        if (__any_sync(~0u, (scale[0] != 1.0f) | (scale[1] != 1.0f))) {
#pragma unroll
          for (int group = 0; group < kColumns; ++group) {
#pragma unroll
            for (int j = 0; j < 4; ++j) out[group][j] *= scale[j / 2];
          }
        }
        LeftOfSums weights(s);
        start_products(out, weights.steps);
        add_product(out, weights, shared.stages[stage][1]);
        finish_products(out);
      });
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] = sum_of_row(sum[r]);
    // If all scores of a row are masked, 1 / 0 makes the row NaN.
    const float inverse = 1.0f / sum[r];
#pragma unroll
    for (int group = 0; group < kColumns; ++group) {
      out[group][2 * r] *= inverse;
      out[group][2 * r + 1] *= inverse;
    }
    const i32 row = block.first + warp() * 16 + lane() / 4 + r * 8;
    if (row < a.queries && lane() % 4 == 0)
      a.log_sum[block.batch * a.queries + row] = __fmaf_rn(largest[r], to_base_2, __log2f(sum[r]));
  }
  store_block(out, block.matrix(a.out), a.out.row, block.first, a.queries);
}

// Loads the gradient of a block's results, and for a lane's two rows the logarithms of the sums.
// Computes and stores delta. `results`: scratch.
BRRR_FN void load_gradient(BlockRows& results, BlockRows& dout, float (&log_sum)[2],
                           float (&delta)[2], Shared& shared, const AttentionGradient& g,
                           const RowBlock& block) {
  const Attention& a = g.of;
  Left out[kSteps], gradient[kSteps];
  if constexpr (kSwizzled) {
    load_blocks(results, shared.block(0), block.matrix(a.out), a.out.row, dout, shared.block(1),
                block.matrix(g.dout), g.dout.row, block.first, a.queries);
    load_left(out, shared.block(0));
  } else {
    load_block(results, shared.block(0), block.matrix(a.out), a.out.row, block.first, a.queries);
    load_left(out, shared.block(0));
    load_block(dout, shared.block(1), block.matrix(g.dout), g.dout.row, block.first, a.queries);
  }
  load_left(gradient, shared.block(1));
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      delta[j % 2] += product_of<Element>(out[step][j], gradient[step][j]);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    delta[r] = sum_of_row(delta[r]);
    const i32 row = block.first + warp() * 16 + lane() / 4 + r * 8;
    const i64 at = block.batch * a.queries + row;
    log_sum[r] = row < a.queries ? a.log_sum[at] : 0.0f;
    if (row < a.queries && lane() % 4 == 0) g.delta[at] = delta[r];
  }
}

// The gradient of the queries, and delta.
extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    attention_query_gradient(const __grid_constant__ AttentionGradient g) {
  wait_for_previous_kernel();
  __shared__ Tiles tiles;
  Shared& shared = aligned_shared();
  const Attention& a = g.of;
  const RowBlock block(a, block_of_queries());
  const Element *k = block.matrix(a.k), *v = block.matrix(a.v);
  const bool* mask = block.mask(a.mask);
  BlockRows q, dout;
  float log_sum[2], delta[2] = {};
  load_gradient(q, dout, log_sum, delta, shared, g, block);
  load_block(q, shared.block(0), block.matrix(a.q), a.q.row, block.first, a.queries);
  find_tiles<true>(tiles, a, block.outer, block.inner, block.number);

  const float to_base_2 = a.scale * kLog2e;
  Sums dq[kColumns] = {};
  for_tiles(
      tiles,
      [&](i32 tile, int stage) {
        start_rows<kTile>(shared.stages[stage][0], k, a.k.row, tile * kTile, a.keys);
        start_rows<kTile>(shared.stages[stage][1], v, a.v.row, tile * kTile, a.keys);
      },
      [&](i32 tile, int stage, bool whole) {
        Sums s[kGroups], dw[kGroups];
        start_products();
        multiply_by_rows(s, q, shared.stages[stage][0]);
        multiply_by_rows(dw, dout, shared.stages[stage][1]);
        finish_products(s, dw);
        mask_scores<true>(s, a, mask, whole, block.first, tile * kTile);
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float weight = exp2_of(__fmaf_rn(s[group][j], to_base_2, -log_sum[j / 2]));
            s[group][j] = weight * (dw[group][j] - delta[j / 2]);
          }
        }
        LeftOfSums ds(s);
        start_products(dq, ds.steps);
        add_product(dq, ds, shared.stages[stage][0]);
        finish_products(dq);
      });
  scale_sums(dq, g.dq_scale);
  store_block(dq, block.matrix(g.dq), g.dq.row, block.first, a.queries);
}

// The gradients of keys and values. A block has rows of keys: its scores are transposed.
extern "C" __global__ void __launch_bounds__(kThreads)
    attention_key_gradient(const __grid_constant__ AttentionGradient g) {
  wait_for_previous_kernel();
  __shared__ Tiles tiles;
  Shared& shared = aligned_shared();
  const Attention& a = g.of;
  const RowBlock block(a, i32(blockIdx.y));
  const Element *q = block.matrix(a.q), *dout = block.matrix(g.dout);
  const bool* mask = block.mask(a.mask);
  const float *log_sum = a.log_sum + block.batch * a.queries,
              *delta = g.delta + block.batch * a.queries;
  BlockRows k, v;
  load_blocks(k, shared.block(0), block.matrix(a.k), a.k.row, v, shared.block(1),
              block.matrix(a.v), a.v.row, block.first, a.keys);
  find_tiles<false>(tiles, a, block.outer, block.inner, block.number);

  const float to_base_2 = a.scale * kLog2e;
  Sums dk[kColumns] = {}, dv[kColumns] = {};
  for_tiles(
      tiles,
      [&](i32 tile, int stage) {
        start_rows<kTile, false>(shared.stages[stage][0], q, a.q.row, tile * kTile, a.queries);
        start_rows<kTile, false>(shared.stages[stage][1], dout, g.dout.row, tile * kTile,
                                 a.queries);
        start_numbers(shared.of_queries[stage][0], log_sum, tile * kTile, a.queries, 0);
        start_numbers(shared.of_queries[stage][1], delta, tile * kTile, a.queries, kTile);
      },
      [&](i32 tile, int stage, bool whole) {
        Sums s[kGroups], dw[kGroups];
        start_products();
        multiply_by_rows(s, k, shared.stages[stage][0]);
        multiply_by_rows(dw, v, shared.stages[stage][1]);
        finish_products(s, dw);
        mask_scores<false>(s, a, mask, whole, block.first, tile * kTile);
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int query = group * 8 + lane() % 4 * 2 + j;
            const float base = shared.of_queries[stage][0][query],
                        minus = shared.of_queries[stage][1][query];
#pragma unroll
            for (int i = j; i < 4; i += 2) {
              s[group][i] = exp2_of(__fmaf_rn(s[group][i], to_base_2, -base));
              dw[group][i] = s[group][i] * (dw[group][i] - minus);
            }
          }
        }
        LeftOfSums weights(s), ds(dw);
        start_products(dv, dk, weights.steps, ds.steps);
        add_product(dv, weights, shared.stages[stage][1]);
        add_product(dk, ds, shared.stages[stage][0]);
        finish_products(dv, dk);
      });
  scale_sums(dk, a.scale);
  store_block(dk, block.matrix(g.dk), g.dk.row, block.first, a.keys);
  store_block(dv, block.matrix(g.dv), g.dv.row, block.first, a.keys);
}
