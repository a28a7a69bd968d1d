// Copies between tensors outside of a captured graph and the graph's own memory: arguments in,
// results out, written arguments back. Source and destination are kernel parameters, which each
// replay sets.

struct CopyRange {
  const char* from;
  char* to;
  i64 bytes;
};
struct CopyRanges {
  CopyRange range[16];
};

__device__ __forceinline__ void copy_range(const CopyRange& range) {
  const i64 step = i64(gridDim.x) * blockDim.x;
  const i64 first = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  i64 head = range.bytes, words = 0;  // leading bytes, then words of 16 bytes
  if ((u64(range.from) ^ u64(range.to)) % 16 == 0) {
    head = min(range.bytes, i64(-u64(range.to) % 16));
    words = (range.bytes - head) / 16;
  }
  const uint4* from = (const uint4*)(range.from + head);
  uint4* to = (uint4*)(range.to + head);
  for (i64 i = first; i < words; i += step) to[i] = from[i];
  for (i64 i = first; i < head; i += step) range.to[i] = range.from[i];
  for (i64 i = head + words * 16 + first; i < range.bytes; i += step) range.to[i] = range.from[i];
}

extern "C" __global__ void __launch_bounds__(256) copy_arguments(const __grid_constant__ CopyRanges ranges) {
  wait_for_previous_kernel();
  copy_range(ranges.range[blockIdx.y]);
}
extern "C" __global__ void __launch_bounds__(256) copy_results(const __grid_constant__ CopyRanges ranges) {
  wait_for_previous_kernel();
  copy_range(ranges.range[blockIdx.y]);
}
extern "C" __global__ void __launch_bounds__(256) write_back_arguments(const __grid_constant__ CopyRanges ranges) {
  wait_for_previous_kernel();
  copy_range(ranges.range[blockIdx.y]);
}
