// gather and index_select: out[i] = x[i with index[i] along one dimension], any strides.
// Expects faults.inl, the typedefs Element (by size only) and Index, and the constants kRank, kWide
// and kWidth: elements moved together, which share an index.

extern "C" __global__ void __launch_bounds__(256)
    gather(Element* out, const Index* index, const Element* x,
           const __grid_constant__ Geometry<3> space, i64 stride, i64 bound, i64 position_stride,
           FaultSink sink) {
  wait_for_previous_kernel();
  for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < space.count;
       i += i64(gridDim.x) * blockDim.x) {
    i64 at[3];
    locate<kRank, kWide>(space, i, at);
    // index_select: the index is a vector that repeats in the space, so its coordinate is the
    // position that errors report.
    const i64 position = position_stride ? at[1] : i;
    const i64 chosen = checked_index(sink, position, index[at[1]], bound);
    store<kWidth>(out + at[0], load<kWidth>(x + at[2] + chosen * stride));
  }
}
