// A copy that reports values outside of low to high. Expects faults.inl and the typedefs Element
// and Bound, which is double or i64.

extern "C" __global__ void __launch_bounds__(256)
    checked(Element* out, const Element* x, i64 count, Bound low, Bound high, FaultSink sink) {
  wait_for_previous_kernel();
  for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += i64(gridDim.x) * blockDim.x) {
    const Element element = x[i];
    out[i] = checked_range(sink, i, element, Bound(widen(element)), low, high);
  }
}
