// Transposes matrices by tiles of 256 bytes either way. A thread transposes a square of V x V
// elements in its registers, and tiles go through shared memory, so that both sides
// move 16 bytes at a time and whole lines. Expects the typedef of Element, by size only.

struct TransposeArgs {
  const Element* from;
  Element* to;
  i64 rows, cols;
  i64 from_leading, to_leading;
  i64 from_batch, to_batch;
  i64 batches;
  bool aligned;  // every column of either begins at a multiple of 16 bytes
};

constexpr int V = 16 / sizeof(Element);
constexpr int kTile = 16 * V;
constexpr int kThreads = 256;

// Word `w` of the elements `j` of all vectors.
BRRR_FN u32 transposed_word(const u32 (&in)[V][4], int j, int w) {
  if constexpr (sizeof(Element) == 2) {
    return __byte_perm(in[2 * w][j / 2], in[2 * w + 1][j / 2], j % 2 ? 0x7632 : 0x5410);
  } else {
    constexpr int kWords = sizeof(Element) / 4;
    return in[w / kWords][j * kWords + w % kWords];
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    transpose(const __grid_constant__ TransposeArgs m) {
  wait_for_previous_kernel();
  __shared__ uint4 tile[kTile * 16];
  const i64 tiles_across = (m.cols + kTile - 1) / kTile;
  const i64 row0 = blockIdx.x / tiles_across * kTile, col0 = blockIdx.x % tiles_across * kTile;
  const bool whole = m.aligned && row0 + kTile <= m.rows && col0 + kTile <= m.cols;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  for (i64 batch = blockIdx.y; batch < m.batches; batch += gridDim.y) {
    const Element* from = m.from + batch * m.from_batch + col0 * m.from_leading + row0;
    Element* to = m.to + batch * m.to_batch + row0 * m.to_leading + col0;
    if (whole) {
      u32 in[V][4];
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const uint4 words =
            *reinterpret_cast<const uint4*>(from + (y * V + i) * m.from_leading + x * V);
        in[i][0] = words.x, in[i][1] = words.y, in[i][2] = words.z, in[i][3] = words.w;
      }
      // Permutes the vectors of a row, so that eight threads never access the same bank.
#pragma unroll
      for (int j = 0; j < V; ++j) {
        tile[(x * V + j) * 16 + (y ^ x % 8)] =
            make_uint4(transposed_word(in, j, 0), transposed_word(in, j, 1),
                       transposed_word(in, j, 2), transposed_word(in, j, 3));
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const int row = y + 16 * i;
        *reinterpret_cast<uint4*>(to + row * m.to_leading + x * V) =
            tile[row * 16 + (x ^ row / V % 8)];
      }
    } else {
      Element* elements = reinterpret_cast<Element*>(tile);  // each column rotated by its number
      const int lane = threadIdx.x % kTile, line = threadIdx.x / kTile;
      constexpr int kLines = kThreads / kTile;
#pragma unroll 16
      for (int i = 0; i < kTile; i += kLines) {
        const int col = line + i;
        if (row0 + lane < m.rows && col0 + col < m.cols)
          elements[col * kTile + (lane + col) % kTile] = from[col * m.from_leading + lane];
      }
      __syncthreads();
#pragma unroll 16
      for (int i = 0; i < kTile; i += kLines) {
        const int row = line + i;
        if (row0 + row < m.rows && col0 + lane < m.cols)
          to[row * m.to_leading + lane] = elements[lane * kTile + (row + lane) % kTile];
      }
    }
    __syncthreads();
  }
}
