// Classifies the tiles of 64 by 64 of a mask: 0: all false, 2: all true, else 1.

struct MaskTiles {
  const bool* mask;
  i32* tiles;
  i64 outer, inner, row, column;  // strides of the mask
  i32 rows, columns, inner_batches;
};

// One block a tile.
extern "C" __global__ void __launch_bounds__(128)
    attention_mask_tiles(const __grid_constant__ MaskTiles m) {
  wait_for_previous_kernel();
  const i32 batch = i32(blockIdx.z), first_row = i32(blockIdx.y) * 64,
            first_column = i32(blockIdx.x) * 64;
  const bool* from = m.mask + batch / m.inner_batches * m.outer + batch % m.inner_batches * m.inner;
  bool any = false, all = true;
  for (i32 i = threadIdx.x; i < 64 * 64; i += blockDim.x) {
    const i32 row = first_row + i / 64, column = first_column + i % 64;
    if (row >= m.rows || column >= m.columns) continue;
    const bool here = from[row * m.row + column * m.column];
    any |= here;
    all &= here;
  }
  any = __syncthreads_or(any);
  all = __syncthreads_and(all);
  if (threadIdx.x == 0)
    m.tiles[(i64(batch) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = i32(any) + i32(all & any);
}
