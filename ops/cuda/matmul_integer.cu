// Integer matrix products, which cuBLASLt lacks: 32 x 32 results per block, any strides. Sums wrap.
// Expects the typedef Element.

struct IntegerProduct {
  const Element* a;
  const Element* b;
  Element* d;
  i64 m, n, k, batches;
  i64 a_row, a_col, b_row, b_col, d_row, d_col;
  i64 a_batch, b_batch, d_batch;
};

constexpr int kTile = 32;
constexpr int kThreads = 256;
constexpr int kEach = kTile * kTile / kThreads;

extern "C" __global__ void __launch_bounds__(kThreads) matmul_integer(IntegerProduct p) {
  wait_for_previous_kernel();
  __shared__ Element tile_a[kTile][kTile + 1], tile_b[kTile][kTile + 1];
  const i64 tiles_across = (p.n + kTile - 1) / kTile;
  const i64 row0 = i64(blockIdx.x) / tiles_across * kTile,
            col0 = i64(blockIdx.x) % tiles_across * kTile;
  const int lane = threadIdx.x % kTile, line = threadIdx.x / kTile;
  constexpr int kLines = kThreads / kTile;
  for (i64 batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
    const Element* a = p.a + batch * p.a_batch;
    const Element* b = p.b + batch * p.b_batch;
    u64 sums[kEach] = {};
    for (i64 k0 = 0; k0 < p.k; k0 += kTile) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int y = line + i * kLines;
        tile_a[y][lane] =
            row0 + y < p.m && k0 + lane < p.k ? a[(row0 + y) * p.a_row + (k0 + lane) * p.a_col] : 0;
        tile_b[y][lane] =
            k0 + y < p.k && col0 + lane < p.n ? b[(k0 + y) * p.b_row + (col0 + lane) * p.b_col] : 0;
      }
      __syncthreads();
#pragma unroll 8
      for (int k = 0; k < kTile; ++k) {
#pragma unroll
        for (int i = 0; i < kEach; ++i)
          sums[i] += u64(tile_a[line + i * kLines][k]) * u64(tile_b[k][lane]);
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const i64 row = row0 + line + i * kLines, col = col0 + lane;
      if (row < p.m && col < p.n)
        p.d[batch * p.d_batch + row * p.d_row + col * p.d_col] = Element(sums[i]);
    }
  }
}
