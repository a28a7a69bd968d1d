// scatter_add, with sums in the order of the index and so the same bits every time.
//
// A line is everything along the dimension scattered in. scatter_serial gives each line a thread
// that walks it. Where lines are long, entries (line, place) are sorted by where they go, keeping
// their order, and scatter_rows or scatter_elements give each destination to one thread.
// scatter_rows is for one index that serves every line.
//
// Expects faults.inl, the typedefs Element and Index, and the constants kRank and kWide. Operands
// of `lines` are out, source, index and the position in the index tensor.

struct Scatter {
  Element* out;
  const Element* source;
  const Index* index;
  i64 places;  // along the dimension, in the index
  i64 bound;   // along the dimension, in out
  i64 out_stride, source_stride, index_stride, position_stride;  // along the dimension
};
typedef Register<Element> Sum;

template <class V>
BRRR_FN V plus(V a, V b) {
  if constexpr (sizeof(V) == 1) {
    return a | b;  // bool
  } else {
    return a + b;
  }
}

extern "C" __global__ void __launch_bounds__(256)
    scatter_serial(Scatter s, const __grid_constant__ Geometry<4> lines, FaultSink sink) {
  wait_for_previous_kernel();
  for (i64 line = i64(blockIdx.x) * blockDim.x + threadIdx.x; line < lines.count;
       line += i64(gridDim.x) * blockDim.x) {
    i64 at[4];
    locate<kRank, kWide>(lines, line, at);
    for (i64 j = 0; j < s.places; ++j) {
      const i64 to = s.index[at[2] + j * s.index_stride];
      if (!index_in_range(sink, at[3] + j * s.position_stride, to, s.bound)) continue;
      Element* place = s.out + at[0] + to * s.out_stride;
      *place = narrow<Element>(plus(widen(*place), widen(s.source[at[1] + j * s.source_stride])));
    }
  }
}

// Entry e is place e % places of line e / places. An index out of range gets the key after all
// others.
extern "C" __global__ void __launch_bounds__(256)
    scatter_keys(Scatter s, const __grid_constant__ Geometry<4> lines, i64 entries, u32 no_key,
                 u32* keys, u32* order, FaultSink sink) {
  wait_for_previous_kernel();
  for (i64 e = i64(blockIdx.x) * blockDim.x + threadIdx.x; e < entries;
       e += i64(gridDim.x) * blockDim.x) {
    const i64 line = e / s.places, j = e - line * s.places;
    i64 at[4];
    locate<kRank, kWide>(lines, line, at);
    const i64 to = s.index[at[2] + j * s.index_stride];
    const bool good = index_in_range(sink, at[3] + j * s.position_stride, to, s.bound);
    keys[e] = good ? u32(line * s.bound + to) : no_key;
    order[e] = u32(e);
  }
}

// Adds the sources of the entries from `slot` on that share its key, four loads at a time and in
// order.
template <class Source>
BRRR_FN Sum sum_segment(Sum sum, const u32* keys, const u32* order, i64 entries, i64 slot,
                        Source source) {
  const u32 key = keys[slot];
  i64 t = slot;
  while (t + 3 < entries && keys[t + 3] == key) {
    Sum values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = source(order[t + i]);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum = plus(sum, values[i]);
    t += 4;
  }
  while (t < entries && keys[t] == key) sum = plus(sum, source(order[t++]));
  return sum;
}

// Threads of a block: `across` lines by blockDim.x / across slots.
extern "C" __global__ void __launch_bounds__(256)
    scatter_rows(Scatter s, const __grid_constant__ Geometry<4> lines, i64 entries, u32 no_key,
                 const u32* keys, const u32* order, int across) {
  wait_for_previous_kernel();
  const i64 slot = i64(blockIdx.x) * (blockDim.x / across) + threadIdx.x / across;
  if (slot >= entries) return;
  const u32 key = keys[slot];
  if (key == no_key || (slot > 0 && keys[slot - 1] == key)) return;
  for (i64 line = i64(blockIdx.y) * across + threadIdx.x % across; line < lines.count;
       line += i64(gridDim.y) * across) {
    i64 at[4];
    locate<kRank, kWide>(lines, line, at);
    Element* place = s.out + at[0] + i64(key) * s.out_stride;
    const Element* source = s.source + at[1];
    *place = narrow<Element>(sum_segment(widen(*place), keys, order, entries, slot, [&](u32 j) {
      return widen(source[i64(j) * s.source_stride]);
    }));
  }
}

extern "C" __global__ void __launch_bounds__(256)
    scatter_elements(Scatter s, const __grid_constant__ Geometry<4> lines, i64 entries, u32 no_key,
                     const u32* keys, const u32* order) {
  wait_for_previous_kernel();
  const i64 slot = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (slot >= entries) return;
  const u32 key = keys[slot];
  if (key == no_key || (slot > 0 && keys[slot - 1] == key)) return;
  const i64 line = order[slot] / s.places, first = line * s.places;
  i64 at[4];
  locate<kRank, kWide>(lines, line, at);
  Element* place = s.out + at[0] + (i64(key) - line * s.bound) * s.out_stride;
  const Element* source = s.source + at[1];
  *place = narrow<Element>(sum_segment(widen(*place), keys, order, entries, slot, [&](u32 e) {
    return widen(source[(i64(e) - first) * s.source_stride]);
  }));
}
