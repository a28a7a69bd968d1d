// A stable radix sort of (key, value) pairs of 32 bits, eight bits at a time, lowest first. The
// result does not depend on the order in which blocks run.

constexpr int kThreads = 256;  // one per digit
constexpr int kWarps = kThreads / 32;
constexpr int kTile = 4096;  // pairs that one block counts and places

BRRR_FN u32 digit_of(u32 key, int shift) { return (key >> shift) & 255u; }

// counts[digit][tile]
extern "C" __global__ void __launch_bounds__(kThreads)
    radix_count(const u32* keys, i64 count, int shift, u32* counts) {
  wait_for_previous_kernel();
  __shared__ u32 mine[256];
  mine[threadIdx.x] = 0;
  __syncthreads();
  const i64 begin = i64(blockIdx.x) * kTile, end = begin + kTile < count ? begin + kTile : count;
  for (i64 i = begin + threadIdx.x; i < end; i += kThreads)
    atomicAdd(&mine[digit_of(keys[i], shift)], 1u);
  __syncthreads();
  counts[i64(threadIdx.x) * gridDim.x + blockIdx.x] = mine[threadIdx.x];
}

// Replaces each of the counts by the sum of those before it. One block.
extern "C" __global__ void __launch_bounds__(1024) radix_offsets(u32* counts, i64 count) {
  wait_for_previous_kernel();
  __shared__ u32 of_warp[32];
  __shared__ u32 carry;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) carry = 0;
  __syncthreads();
  for (i64 base = 0; base < count; base += 1024) {
    const i64 i = base + threadIdx.x;
    const u32 own = i < count ? counts[i] : 0;
    u32 sum = own;
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const u32 other = __shfl_up_sync(~0u, sum, by);
      if (lane >= by) sum += other;
    }
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    if (warp == 0) {
      u32 total = of_warp[lane];
#pragma unroll
      for (int by = 1; by < 32; by *= 2) {
        const u32 other = __shfl_up_sync(~0u, total, by);
        if (lane >= by) total += other;
      }
      of_warp[lane] = total;
    }
    __syncthreads();
    const u32 before = carry + (warp > 0 ? of_warp[warp - 1] : 0);
    if (i < count) counts[i] = before + sum - own;
    __syncthreads();
    if (threadIdx.x == 0) carry += of_warp[31];
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    radix_place(const u32* keys, const u32* values, i64 count, int shift, const u32* offsets,
                u32* keys_to, u32* values_to) {
  wait_for_previous_kernel();
  __shared__ u32 next[256];  // where the next pair of a digit goes
  __shared__ u32
      in_warp[kWarps][256];  // pairs of a digit in each warp, then how many come before that warp's
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  next[threadIdx.x] = offsets[i64(threadIdx.x) * gridDim.x + blockIdx.x];
  const i64 begin = i64(blockIdx.x) * kTile, end = begin + kTile < count ? begin + kTile : count;
  for (i64 base = begin; base < end; base += kThreads) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) in_warp[w][threadIdx.x] = 0;
    __syncthreads();
    const i64 i = base + threadIdx.x;
    const bool mine = i < end;
    const u32 key = mine ? keys[i] : 0, value = mine ? values[i] : 0;
    const u32 digit = mine ? digit_of(key, shift) : 256u;
    const u32 same = __match_any_sync(~0u, digit);
    const u32 rank = __popc(same & ((1u << lane) - 1u));
    if (mine && rank == 0) in_warp[warp][digit] = __popc(same);
    __syncthreads();
    u32 sum = next[threadIdx.x];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const u32 own = in_warp[w][threadIdx.x];
      in_warp[w][threadIdx.x] = sum;
      sum += own;
    }
    next[threadIdx.x] = sum;
    __syncthreads();
    if (mine) {
      const u32 to = in_warp[warp][digit] + rank;
      keys_to[to] = key;
      values_to[to] = value;
    }
    __syncthreads();
  }
}
