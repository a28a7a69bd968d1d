// Running sums along one dimension of x[outer][n][inner]. A line is cut into parts; when there are
// several, a first kernel leaves each part's sum, and the scan of a part starts from the sum of
// those before it, added in one order. Expects the typedefs In, Out and Sum.

struct Scan {
  const In* x;
  Out* out;
  Sum* part_sums;  // [outer][parts][inner]
  i64 outer, n, inner;
  i64 parts, part;  // how many, and the elements of one
};

constexpr int kThreads = 256;
constexpr int kEach = 8;
constexpr int kTile = kThreads * kEach;

BRRR_FN Sum value_of(In a) { return Sum(widen(a)); }

template <class T>
BRRR_FN T shuffle_up(T a, int by) {
  return __shfl_up_sync(~0u, a, by);
}

// The sum over the block, in every thread; lower threads come first.
BRRR_FN Sum block_sum(Sum a, Sum* of_warp) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2) a += shuffle<true>(a, by, 32);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = a;
  __syncthreads();
  Sum sum = of_warp[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) sum += of_warp[w];
  return sum;
}

// --- inner == 1: a block for each part of a line ---

extern "C" __global__ void __launch_bounds__(kThreads) scan_row_sums(Scan s) {
  wait_for_previous_kernel();
  __shared__ Sum of_warp[kThreads / 32];
  const i64 line = i64(blockIdx.x) / s.parts, part = i64(blockIdx.x) % s.parts;
  const i64 begin = part * s.part, end = begin + s.part < s.n ? begin + s.part : s.n;
  const In* x = s.x + line * s.n;
  Sum sums[4] = {};
  i64 i = begin + threadIdx.x;
  for (; i + 3 * kThreads < end; i += 4 * kThreads) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[k] += value_of(x[i + k * kThreads]);
  }
  for (; i < end; i += kThreads) sums[0] += value_of(x[i]);
  const Sum sum = block_sum((sums[0] + sums[1]) + (sums[2] + sums[3]), of_warp);
  if (threadIdx.x == 0) s.part_sums[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(kThreads) scan_rows(Scan s) {
  wait_for_previous_kernel();
  __shared__ Sum of_warp[kThreads / 32];
  __shared__ Out staged[kTile];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (i64 block = blockIdx.x; block < s.outer * s.parts; block += gridDim.x) {
    const i64 line = block / s.parts, part = block % s.parts;
    const i64 begin = part * s.part, end = begin + s.part < s.n ? begin + s.part : s.n;
    Sum carry = Sum(0);
    if (part > 0) {
      Sum before = Sum(0);
      for (i64 p = threadIdx.x; p < part; p += kThreads) before += s.part_sums[line * s.parts + p];
      carry = block_sum(before, of_warp);
    }
    const In* x = s.x + line * s.n;
    Out* out = s.out + line * s.n;
    for (i64 base = begin; base < end; base += kTile) {
      const i64 first = base + threadIdx.x * kEach;
      Sum sums[kEach];
      Sum sum = Sum(0);
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        if (first + k < end) sum += value_of(x[first + k]);
        sums[k] = sum;
      }
      Sum through = sum;  // this thread's and those before it in the warp
#pragma unroll
      for (int by = 1; by < 32; by *= 2) {
        const Sum other = shuffle_up(through, by);
        if (lane >= by) through = other + through;
      }
      Sum before = shuffle_up(through, 1);
      if (lane == 0) before = Sum(0);
      __syncthreads();
      if (lane == 31) of_warp[warp] = through;
      __syncthreads();
      Sum offset = carry;
#pragma unroll
      for (int w = 0; w < kThreads / 32; ++w) {
        if (w < warp) offset += of_warp[w];
        carry += of_warp[w];
      }
      offset += before;
#pragma unroll
      for (int k = 0; k < kEach; ++k)
        staged[threadIdx.x * kEach + k] = narrow<Out>(offset + sums[k]);
      __syncthreads();
      for (int k = threadIdx.x; k < kTile && base + k < end; k += kThreads)
        out[base + k] = staged[k];
    }
    __syncthreads();
  }
}

// --- inner > 1: a thread for each part of a column ---

extern "C" __global__ void __launch_bounds__(kThreads) scan_column_sums(Scan s) {
  wait_for_previous_kernel();
  const i64 count = s.outer * s.parts * s.inner;
  for (i64 t = i64(blockIdx.x) * kThreads + threadIdx.x; t < count;
       t += i64(gridDim.x) * kThreads) {
    const i64 column = t % s.inner, part = t / s.inner % s.parts, outer = t / s.inner / s.parts;
    const i64 begin = part * s.part, end = begin + s.part < s.n ? begin + s.part : s.n;
    const In* x = s.x + outer * s.n * s.inner + column;
    Sum sum = Sum(0);
#pragma unroll 8
    for (i64 i = begin; i < end; ++i) sum += value_of(x[i * s.inner]);
    s.part_sums[t] = sum;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) scan_columns(Scan s) {
  wait_for_previous_kernel();
  const i64 count = s.outer * s.parts * s.inner;
  for (i64 t = i64(blockIdx.x) * kThreads + threadIdx.x; t < count;
       t += i64(gridDim.x) * kThreads) {
    const i64 column = t % s.inner, part = t / s.inner % s.parts, outer = t / s.inner / s.parts;
    const i64 begin = part * s.part, end = begin + s.part < s.n ? begin + s.part : s.n;
    const In* __restrict__ x = s.x + outer * s.n * s.inner + column;
    Out* __restrict__ out = s.out + outer * s.n * s.inner + column;
    Sum sum = Sum(0);
    for (i64 p = 0; p < part; ++p) sum += s.part_sums[(outer * s.parts + p) * s.inner + column];
#pragma unroll 8
    for (i64 i = begin; i < end; ++i) {
      sum += value_of(x[i * s.inner]);
      out[i * s.inner] = narrow<Out>(sum);
    }
  }
}
