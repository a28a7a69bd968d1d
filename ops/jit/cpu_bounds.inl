// Reads of operands that have elements within bounds of coordinates alone, such as the parts of a
// concatenation.

// Where elements are not 0: at coordinates from `low` on, below `high`. Operand `index` of the
// space has the coordinate of an element, less `base`.
struct CoordinateBound {
  int index;
  i64 base, low, high;
};
// The elements of a run that are within all bounds, where these are ranges of it.
struct BoundedRun {
  i64 begin, end;
};
template <int N>
BRRR_SCALAR_FN BoundedRun run_within(const StridedSpace& space, const Coordinates& place,
                                     const CoordinateBound (&bounds)[N], const i64 (&step)[N],
                                     const i64 (&next_at)[N], bool is_plane, i64 run) {
  const int inner = space.rank - 1;
  const i64 row = space.size[inner], lead = place.at[inner];
  i64 begin = 0, end = run;
  for (int k = 0; k < N; ++k) {
    const i64 at = place.offset(space, bounds[k].index) + bounds[k].base;
    const bool by_rows = is_plane && next_at[k] == 1;
    if (by_rows || step[k] == 1) {
      const i64 unit = by_rows ? row : 1, first = by_rows ? at * row + lead : at;
      if (bounds[k].low * unit - first > begin) begin = bounds[k].low * unit - first;
      end = least(end, bounds[k].high * unit - first);
    } else if (step[k] == 0 && (at < bounds[k].low || at >= bounds[k].high)) {
      end = 0;
    }
  }
  return {begin, end};
}

// The same as `read` of an operand with bounds: `buffer`, with 0 outside of them.
template <int N, class V, class T>
BRRR_ONCE_A_TILE const V* read_within(const StridedSpace& space, int operand, Coordinates place,
                                      const T* base, i64 n, V* buffer,
                                      const CoordinateBound (&bounds)[N]) {
  const int inner = space.rank - 1, outer = inner > 0 ? inner - 1 : 0;
  const i64 row = space.size[inner], stride = space.stride[operand][inner],
            next = inner > 0 ? space.stride[operand][outer] : 0;
  // Of coordinates, from element to element and from row to row.
  i64 step[N], next_at[N];
  bool is_plane = inner > 0 && next == row * stride;  // rows that are in or out as a whole
  bool is_range = true, are_alike = true;             // of rows
  for (int k = 0; k < N; ++k) {
    step[k] = space.stride[bounds[k].index][inner];
    next_at[k] = inner > 0 ? space.stride[bounds[k].index][outer] : 0;
    is_plane &= step[k] == 0 && (next_at[k] == 0 || next_at[k] == 1);
    is_range &= step[k] == 0 || step[k] == 1;
    are_alike &= next_at[k] == 0;
  }
  for (i64 i = 0; i < padded(n); ++i) buffer[i] = V(0);
  for (i64 done = 0; done < n;) {
    // The rest of a row, or of a plane, or whole rows.
    const i64 lead = place.at[inner], rest = n - done;
    i64 run = least(row - lead, rest), rows = 1;
    const i64 left = inner > 0 ? space.size[outer] - place.at[outer] : 1;
    if (is_plane) {
      run = least(left * row - lead, rest);
    } else if (are_alike && lead == 0) {
      rows = least(left, rest / row);
      if (rows == 0) rows = 1;
    }
    const T* from = base + place.offset(space, operand);
    const BoundedRun within = run_within(space, place, bounds, step, next_at, is_plane, run);
    const i64 begin = within.begin, end = within.end;
    if (is_range) {
      for (i64 r = 0; begin < end && r < rows; ++r)
        copy_run(buffer + done + begin + r * row, from + begin * stride + r * next, stride,
                 end - begin);
    } else {
      rows = 1;
      for (i64 i = 0; i < run; ++i) {
        bool has = true;
        for (int k = 0; k < N; ++k) {
          const i64 at = place.offset(space, bounds[k].index) + bounds[k].base + i * step[k];
          has &= at >= bounds[k].low && at < bounds[k].high;
        }
        if (has) buffer[done + i] = narrow<V>(widen(from[i * stride]));
      }
    }
    done += run * rows;
    place.advance(space, run * rows);
  }
  for (i64 i = n; i < padded(n); ++i) buffer[i] = buffer[0];
  return buffer;
}
