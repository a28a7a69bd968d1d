// Copies between tensors outside of a captured graph and the graph's own memory: arguments in,
// results out, arguments that were written back. Where to and from is a parameter, which a replay
// sets anew.

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
  i64 done = 0;
  if ((u64(part.from) | u64(part.to)) % 16 == 0) {
    const i64 words = part.bytes / 16;
    for (i64 i = first; i < words; i += step) ((uint4*)part.to)[i] = ((const uint4*)part.from)[i];
    done = words * 16;
  }
  for (i64 i = done + first; i < part.bytes; i += step) part.to[i] = part.from[i];
}

extern "C" __global__ void __launch_bounds__(256) feed(const __grid_constant__ Parts parts) {
  in_turn();
  copy_part(parts.part[blockIdx.y]);
}
extern "C" __global__ void __launch_bounds__(256) hand_out(const __grid_constant__ Parts parts) {
  in_turn();
  copy_part(parts.part[blockIdx.y]);
}
extern "C" __global__ void __launch_bounds__(256) hand_back(const __grid_constant__ Parts parts) {
  in_turn();
  copy_part(parts.part[blockIdx.y]);
}
