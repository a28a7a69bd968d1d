// Copies between tensors outside of a captured graph and the graph's own memory: arguments in,
// results out, written arguments back. Source and destination are kernel parameters, which each
// replay sets.

struct Part {
  const char* from;
  char* to;
  i64 bytes;
};
struct Parts {
  Part part[16];
};

__device__ __forceinline__ void copy_part(const Part& part) {
  const i64 step = i64(gridDim.x) * blockDim.x;
  const i64 first = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  i64 head = part.bytes, words = 0;  // leading bytes, then words of 16 bytes
  if ((u64(part.from) ^ u64(part.to)) % 16 == 0) {
    head = min(part.bytes, i64(-u64(part.to) % 16));
    words = (part.bytes - head) / 16;
  }
  const uint4* from = (const uint4*)(part.from + head);
  uint4* to = (uint4*)(part.to + head);
  for (i64 i = first; i < words; i += step) to[i] = from[i];
  for (i64 i = first; i < head; i += step) part.to[i] = part.from[i];
  for (i64 i = head + words * 16 + first; i < part.bytes; i += step) part.to[i] = part.from[i];
}

extern "C" __global__ void __launch_bounds__(256) copy_arguments(const __grid_constant__ Parts parts) {
  wait_for_previous_kernel();
  copy_part(parts.part[blockIdx.y]);
}
extern "C" __global__ void __launch_bounds__(256) copy_results(const __grid_constant__ Parts parts) {
  wait_for_previous_kernel();
  copy_part(parts.part[blockIdx.y]);
}
extern "C" __global__ void __launch_bounds__(256) write_back_arguments(const __grid_constant__ Parts parts) {
  wait_for_previous_kernel();
  copy_part(parts.part[blockIdx.y]);
}
