// Matrices with rows and columns exchanged, by tiles through shared memory: both sides move whole
// lines. In front of it stands the typedef of Element, by size only.

struct TurnedMatrix {
  const Element* from;
  Element* to;
  i64 rows, cols;
  i64 from_leading, to_leading;
  i64 from_batch, to_batch;
  i64 batches;
};

constexpr int kTile = 64;
constexpr int kThreads = 256;

extern "C" __global__ void __launch_bounds__(kThreads) turn(TurnedMatrix m) {
  __shared__ Element tile[kTile][kTile + 1];
  const i64 tiles_down = (m.rows + kTile - 1) / kTile;
  const i64 row0 = i64(blockIdx.x) % tiles_down * kTile;
  const i64 col0 = i64(blockIdx.x) / tiles_down * kTile;
  const int lane = threadIdx.x % kTile, line = threadIdx.x / kTile;
  constexpr int kLines = kThreads / kTile;
  for (i64 batch = blockIdx.y; batch < m.batches; batch += gridDim.y) {
    const Element* from = m.from + batch * m.from_batch + col0 * m.from_leading + row0;
    Element* to = m.to + batch * m.to_batch + row0 * m.to_leading + col0;
    const bool row_inside = row0 + lane < m.rows, col_inside = col0 + lane < m.cols;
#pragma unroll
    for (int i = 0; i < kTile; i += kLines) {
      if (row_inside && col0 + line + i < m.cols)
        tile[line + i][lane] = from[(line + i) * m.from_leading + lane];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; i += kLines) {
      if (col_inside && row0 + line + i < m.rows)
        to[(line + i) * m.to_leading + lane] = tile[lane][line + i];
    }
    __syncthreads();
  }
}
