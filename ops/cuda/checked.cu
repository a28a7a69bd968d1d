// A copy that reports what lies outside of low to high. In front of it stand faults.inl, the typedefs
// Element and Wide (double or i64: what the bounds are), and kKind.

BRRR_FN i64 bits_of(double a) { return __double_as_longlong(a); }
BRRR_FN i64 bits_of(i64 a) { return a; }

extern "C" __global__ void __launch_bounds__(256)
    checked(Element* out, const Element* x, i64 count, Wide low, Wide high, FaultSink sink) {
  in_turn();
  for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += i64(gridDim.x) * blockDim.x) {
    const Element element = x[i];
    const Wide value = Wide(widen(element));
    if (!(value >= low && value <= high))
      report_fault(sink, i, kKind, bits_of(value), bits_of(low), bits_of(high));
    out[i] = element;
  }
}
