// How generated CPU kernels walk: a tile of elements at a time, in row-major order. An operand that
// is contiguous there is read and written in place, any other through a buffer in the first cache.
// Tiles are padded to whole groups with copies of their first element, which is then computed
// again.

#if BRRR_VECTOR_MATH
// Of ops/cpu/vector_math.cpp, which a kernel cannot link with: the loader of the kernel sets these.
extern "C" {
void* brrr_vector_functions[6];
#define BRRR_VECTOR_FUNCTION(name, number)                                                         \
  FloatVector BRRR_VECTOR_NAME_F32(v, name)(FloatVector a) {                                       \
    return reinterpret_cast<FloatVector (*)(FloatVector)>(brrr_vector_functions[number])(a);       \
  }                                                                                                \
  DoubleVector BRRR_VECTOR_NAME_F64(v, name)(DoubleVector a) {                                     \
    return reinterpret_cast<DoubleVector (*)(DoubleVector)>(brrr_vector_functions[number + 1])(a); \
  }
BRRR_VECTOR_FUNCTION(brrr_exp, 0)
BRRR_VECTOR_FUNCTION(brrr_expm1, 2)
BRRR_VECTOR_FUNCTION(brrr_log, 4)
}

template <class T, class U>
BRRR_SCALAR_FN Lanes<T> lanes_of(const U* from) {
  if constexpr (__is_same(T, U)) {
    return Lanes<T>::load(from);
  } else {
    T values[Lanes<T>::count];
    for (i64 i = 0; i < Lanes<T>::count; ++i) values[i] = narrow<T>(from[i]);
    return Lanes<T>::load(values);
  }
}
// In a loop of its own: a loop that calls functions has no registers left for rounding.
template <class T>
BRRR_ONCE_A_TILE void round_tile(float* values, i64 n) {
  for (i64 i = 0; i < n; i += Lanes<float>::count)
    rounded<T>(Lanes<float>::load(values + i)).store(values + i);
}
template <class T, class F>
BRRR_SCALAR_FN Lanes<T> lanes_by(F f) {
  T values[Lanes<T>::count];
  for (i64 i = 0; i < Lanes<T>::count; ++i) values[i] = f(i);
  return Lanes<T>::load(values);
}
#endif

constexpr i64 kTile = 512, kMost = kTile, kGroup = 8, kLanes = 32;

// As ops/jit/cpu_kernel.h has them.
struct Fault {
  i64 position;
  int check, kind;
  i64 value, low, high;
};
struct Arguments {
  void* const* outputs;
  const void* const* inputs;
  const u64* scalars;
  const StridedSpace *space, *reduced;
  i64 run, piece, block;
  Fault* fault;
  u64* parts;
};

// An accumulator of a part of a row.
template <class A>
BRRR_SCALAR_FN void leave_part(const Arguments& a, i64 number, A total) {
  __builtin_memcpy(a.parts + number, &total, sizeof total);
}
template <class A>
BRRR_SCALAR_FN A part(const Arguments& a, i64 number) {
  A total;
  __builtin_memcpy(&total, a.parts + number, sizeof total);
  return total;
}

template <class T>
BRRR_SCALAR_FN T scalar_of(const Arguments& a, int number) {
  T value;
  __builtin_memcpy(&value, a.scalars + number, sizeof value);
  return value;
}

BRRR_SCALAR_FN i64 least(i64 a, i64 b) { return a < b ? a : b; }
BRRR_SCALAR_FN i64 padded(i64 n) { return (n + kGroup - 1) & -kGroup; }

// n elements, adjacent or every `stride`-th one, to adjacent registers. Fewer than a group are
// copied one by one: memmove, or the tests before a loop of vectors, would take longer.
template <class V, class T>
BRRR_SCALAR_FN void copy_run(V* to, const T* from, i64 stride, i64 n) {
  if (n < kGroup) {
    for (i64 i = 0; i < n; ++i) {
      to[i] = narrow<V>(widen(from[i * stride]));
      asm volatile("");  // not vectorized
    }
  } else if (stride == 1) {
    convert_loop<V, T>(to, from, n);
  } else {
    for (i64 i = 0; i < n; ++i) to[i] = narrow<V>(widen(from[i * stride]));
  }
}

// Elements [place, place + n) of an operand in registers V: `buffer`, or its own memory.
template <class V, class T>
BRRR_ONCE_A_TILE const V* read(const StridedSpace& space, int operand, const Coordinates& place,
                               const T* base, i64 n, V* buffer) {
  const i64 stride = space.inner_stride(operand);
  if constexpr (__is_same(V, T)) {
    if (stride == 1 && n % kGroup == 0 && place.run(space) >= n)
      return base + place.offset(space, operand);
  }
  each_run(space, operand, place, n, [&](i64 first, i64 run, i64 offset) {
    const T* from = base + offset;
    V* to = buffer + first;
    if (stride == 0) {
      const V value = narrow<V>(widen(*from));
      for (i64 i = 0; i < run; ++i) to[i] = value;
    } else {
      copy_run(to, from, stride, run);
    }
  });
  for (i64 i = n; i < padded(n); ++i) buffer[i] = buffer[0];
  return buffer;
}
// The same for the offsets of elements.
BRRR_FN const i64* offsets(const StridedSpace& space, int operand, const Coordinates& place, i64 n,
                           i64* buffer) {
  const i64 stride = space.inner_stride(operand);
  each_run(space, operand, place, n, [&](i64 first, i64 run, i64 offset) {
    for (i64 i = 0; i < run; ++i) buffer[first + i] = offset + i * stride;
  });
  for (i64 i = n; i < padded(n); ++i) buffer[i] = buffer[0];
  return buffer;
}

// Where values V of a tile are computed: in the operand's own memory, or in `buffer`.
template <class V, class T>
V* destination(const StridedSpace& space, int operand, const Coordinates& place, T* base, i64 n,
               V* buffer) {
  if constexpr (__is_same(V, T)) {
    if (space.inner_stride(operand) == 1 && n % kGroup == 0 && place.run(space) >= n)
      return base + place.offset(space, operand);
  }
  return buffer;
}
// The same of operands that are contiguous in a tile,
template <class V, class T>
BRRR_ONCE_A_TILE void fill_tile(V* buffer, const T* from, i64 n) {
  convert_loop<V, T>(buffer, from, n);
  for (i64 i = n; i < padded(n); ++i) buffer[i] = buffer[0];
}
template <class V, class T>
BRRR_FN const V* read_direct(const T* from, i64 n, V* buffer) {
  if constexpr (__is_same(V, T)) {
    if (n % kGroup == 0) return from;
  }
  fill_tile(buffer, from, n);
  return buffer;
}
template <class V, class T>
BRRR_FN const V* read_copy(const T* from, i64 n, V* buffer) {
  fill_tile(buffer, from, n);
  return buffer;
}
template <class V, class T>
BRRR_FN V* destination_direct(T* to, i64 n, V* buffer) {
  if constexpr (__is_same(V, T)) {
    if (n % kGroup == 0) return to;
  }
  return buffer;
}
template <class V, class T>
BRRR_ONCE_A_TILE void store_tile(T* to, const V* values, i64 n) {
  convert_loop<T, V>(to, values, n);
}
template <class V, class T>
BRRR_FN void write_direct(T* to, i64 n, const V* values) {
  if constexpr (__is_same(V, T)) {
    if (to == values) return;
  }
  store_tile(to, values, n);
}
// or have one stride in it.
template <class V, class T>
BRRR_ONCE_A_TILE const V* read_strided(const T* from, i64 stride, i64 n, V* buffer) {
  if (stride == 0) {
    const V value = narrow<V>(widen(*from));
    for (i64 i = 0; i < n; ++i) buffer[i] = value;
  } else {
    for (i64 i = 0; i < n; ++i) buffer[i] = narrow<V>(widen(from[i * stride]));
  }
  for (i64 i = n; i < padded(n); ++i) buffer[i] = buffer[0];
  return buffer;
}
template <class V, class T>
BRRR_ONCE_A_TILE void write_strided(T* to, i64 stride, i64 n, const V* values) {
  for (i64 i = 0; i < n; ++i) to[i * stride] = narrow<T>(values[i]);
}
static BRRR_ONCE_A_TILE const i64* offsets_strided(i64 stride, i64 n, i64* buffer) {
  for (i64 i = 0; i < n; ++i) buffer[i] = i * stride;
  for (i64 i = n; i < padded(n); ++i) buffer[i] = buffer[0];
  return buffer;
}

// or several lines of N elements, each with one stride, and one from line to line.
template <i64 N, class V, class T>
BRRR_ONCE_A_TILE const V* read_lines(const T* from, i64 stride, i64 next, i64 lines, i64 n,
                                     V* buffer) {
  for (i64 line = 0; line < lines; ++line) {
    const T* at = from + line * next;
    V* to = buffer + line * N;
    if (stride == 1) {
      convert_loop<V, T>(to, at, N);
    } else {
      for (i64 i = 0; i < N; ++i) to[i] = narrow<V>(widen(at[i * stride]));
    }
  }
  for (i64 i = n; i < padded(n); ++i) buffer[i] = buffer[0];
  return buffer;
}
template <i64 N, class V, class T>
BRRR_ONCE_A_TILE void write_lines(T* to, i64 stride, i64 next, i64 lines, const V* values) {
  for (i64 line = 0; line < lines; ++line) {
    if (stride == 1) {
      convert_loop<T, V>(to + line * next, values + line * N, N);
    } else {
      for (i64 i = 0; i < N; ++i) to[line * next + i * stride] = narrow<T>(values[line * N + i]);
    }
  }
}
template <i64 N>
BRRR_ONCE_A_TILE const i64* offsets_lines(i64 stride, i64 next, i64 lines, i64 n, i64* buffer) {
  for (i64 line = 0; line < lines; ++line) {
    for (i64 i = 0; i < N; ++i) buffer[line * N + i] = line * next + i * stride;
  }
  for (i64 i = n; i < padded(n); ++i) buffer[i] = buffer[0];
  return buffer;
}

// Elements `base + offset[i]` of the draw at `place`. Adjacent ones are drawn in batches.
template <class Kind, class T>
BRRR_ONCE_A_TILE T* draw_tile(const i64* state, i64 place, u32 threshold, const i64* offset,
                              i64 base, i64 n, T* buffer) {
  i64 not_adjacent = 0;
  for (i64 i = 0; i < n; ++i) not_adjacent |= offset[i] ^ (offset[0] + i);
  const u64 seed = static_cast<u64>(state[0]), step = static_cast<u64>(state[1]);
  const u32 number = static_cast<u32>(place) + static_cast<u32>(state[2]);
  if (not_adjacent == 0) {
    constexpr i64 kDrawn = kBatch * Kind::width;
    const i64 first = base + offset[0];
    for (i64 i = 0, skipped = first % Kind::width; i < n; skipped = 0) {
      const Words words(seed, step, number, static_cast<u64>((first + i) / Kind::width));
      const i64 count = least(n - i, kDrawn - skipped);
      if (count == kDrawn) {
        Kind::fill(buffer + i, words, threshold);
      } else {
        T drawn[kDrawn];
        Kind::fill(drawn, words, threshold);
        for (i64 k = 0; k < count; ++k) buffer[i + k] = drawn[skipped + k];
      }
      i += count;
    }
  } else {
    brrr_cached_block<Kind::width> last;
    for (i64 i = 0; i < n; ++i) {
      const u64 at = static_cast<u64>(base + offset[i]);
      last.find(state, place, at);
      buffer[i] = Kind::at(last.block, at, threshold);
    }
  }
  for (i64 i = n; i < padded(n); ++i) buffer[i] = buffer[0];
  return buffer;
}

template <class V, class T>
BRRR_ONCE_A_TILE void write(const StridedSpace& space, int operand, const Coordinates& place,
                            T* base, i64 n, const V* values) {
  const i64 stride = space.inner_stride(operand);
  each_run(space, operand, place, n, [&](i64 first, i64 run, i64 offset) {
    T* to = base + offset;
    if (stride == 1 && run >= kGroup) {
      convert_loop<T, V>(to, values + first, run);  // nothing where they are there already
    } else {
      for (i64 i = 0; i < run; ++i) to[i * stride] = narrow<T>(values[first + i]);
    }
  });
}

#if BRRR_VECTOR_MATH
template <class T, class U>
BRRR_SCALAR_FN Lanes<T> wide_lanes(const U* from) {
  if constexpr (__is_same(T, double) && __is_same(U, float)) {
    typedef float Half __attribute__((vector_size(kVectorBytes / 2)));
    Half values;
    __builtin_memcpy(&values, from, sizeof values);
#if defined(__AVX__) && !defined(__clang__)
    return Lanes<T>(__builtin_ia32_cvtps2pd256(values));  // g++ 12 converts each half by itself
#else
    return Lanes<T>(__builtin_convertvector(values, DoubleVector));
#endif
  } else {
    return lanes_of<T>(from);
  }
}
// The lanes from the one numbered `by` on, and others.
template <class T>
BRRR_SCALAR_FN Lanes<T> lanes_from(Lanes<T> a, int by) {
#if defined(__clang__)
  for (i64 i = 0; i + by < Lanes<T>::count; ++i) a.v[i] = a.v[i + by];
  return a;
#else
  typename Lanes<T>::Mask which;
  for (i64 i = 0; i < Lanes<T>::count; ++i) which[i] = i + by;
  return Lanes<T>(__builtin_shuffle(a.v, which));
#endif
}

// fold_run below, of at least kLanes elements, with its lanes in registers.
template <class R, class A, class V>
BRRR_SCALAR_FN A fold_lanes(A total, const V* values, i64 n) {
  constexpr i64 kWidth = Lanes<A>::count, kVectors = kLanes / kWidth;
  const auto both = [](Lanes<A> x, Lanes<A> y) { return R::template combine<Lanes<A>>(x, y); };
  const auto mapped = [](const V* from) { return R::template map<Lanes<A>>(wide_lanes<A>(from)); };
  struct {
    typename Lanes<A>::Vector v;
  } lanes[kVectors];
#pragma GCC unroll 16
  for (i64 k = 0; k < kVectors; ++k) lanes[k].v = mapped(values + k * kWidth).v;
  i64 i = kLanes;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 16
    for (i64 k = 0; k < kVectors; ++k)
      lanes[k].v = both(lanes[k].v, mapped(values + i + k * kWidth)).v;
  }
  if (i < n) {
    // The rest is combined with the first lanes; the others keep their values.
    alignas(64) A rest[kLanes];
    for (i64 k = 0; k < kVectors; ++k) Lanes<A>(lanes[k].v).store(rest + k * kWidth);
    for (i64 j = 0; j < n - i; ++j)
      rest[j] = R::template combine<A>(rest[j], R::template map<A>(static_cast<A>(values[i + j])));
    for (i64 k = 0; k < kVectors; ++k) lanes[k].v = Lanes<A>::load(rest + k * kWidth).v;
  }
#pragma GCC unroll 8
  for (i64 half = kVectors / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
    for (i64 k = 0; k < half; ++k) lanes[k].v = both(lanes[k].v, lanes[k + half].v).v;
  }
  Lanes<A> last = lanes[0].v;
#pragma GCC unroll 4
  for (i64 half = kWidth / 2; half > 0; half /= 2)
    last = both(last, lanes_from(last, static_cast<int>(half)));
  return R::template combine<A>(total, last.v[0]);
}
#endif

// The reduction of a run of a row as ops/cpu/reduction_loops.inl does it: the order of combination
// depends on its length only.
template <class R, class A, class V>
BRRR_ONCE_A_TILE A fold_run(A total, const V* values, i64 n) {
  const auto mapped = [](V value) { return R::template map<A>(static_cast<A>(value)); };
  const auto both = [](A x, A y) { return R::template combine<A>(x, y); };
  if (n < kLanes) {
    for (i64 i = 0; i < n; ++i) total = both(total, mapped(values[i]));
    return total;
  }
#if BRRR_VECTOR_MATH
  if constexpr (R::in_lanes && scalar_traits<A>::floating && scalar_traits<V>::floating)
    return fold_lanes<R, A>(total, values, n);
#endif
  A lanes[kLanes];
  for (i64 j = 0; j < kLanes; ++j) lanes[j] = mapped(values[j]);
  i64 i = kLanes;
  for (; i + kLanes <= n; i += kLanes) {
    for (i64 j = 0; j < kLanes; ++j) lanes[j] = both(lanes[j], mapped(values[i + j]));
  }
  for (i64 j = 0; j < n - i; ++j) lanes[j] = both(lanes[j], mapped(values[i + j]));
  for (i64 half = kLanes / 2; half > 0; half /= 2) {
    for (i64 j = 0; j < half; ++j) lanes[j] = both(lanes[j], lanes[j + half]);
  }
  return both(total, lanes[0]);
}
// Of a whole row, run by run, each of them in pieces.
template <class R, class A, class V>
BRRR_FN A folded(const V* values, i64 n, i64 run, i64 piece) {
  A total = R::template identity<A>();
  if (run >= n && piece >= n) return fold_run<R, A>(total, values, n);
  for (i64 first = 0; first < n;) {
    const i64 end = least(n, (first / run + 1) * run);
    for (; first < end; first += least(piece, end - first))
      total = fold_run<R, A>(total, values + first, least(piece, end - first));
  }
  return total;
}

// The same of a row that comes tile by tile: the order of combination depends on its length only,
// and is that of ops/cpu/reduction_loops.inl. A run is cut into pieces of at most `piece` elements,
// whose results are combined in order.
template <class R, class A>
struct Folded {
  A total, lanes[kLanes];
  i64 rest = 0, left = 0, piece = 0;
  bool in_lanes = false, fresh = false;

  BRRR_SCALAR_FN Folded() : total(R::template identity<A>()) {}
  BRRR_SCALAR_FN void begin(i64 length, i64 most) {
    rest = length;
    piece = most;
    begin_piece();
  }
  BRRR_SCALAR_FN void begin_piece() {
    left = least(rest, piece);
    rest -= left;
    in_lanes = left >= kLanes;
    fresh = true;
  }
  template <class V>
  BRRR_SCALAR_FN void take(const V* values, i64 n) {
    const auto mapped = [](V value) { return R::template map<A>(static_cast<A>(value)); };
    left -= n;
    if (!in_lanes) {
      for (i64 i = 0; i < n; ++i) total = R::template combine<A>(total, mapped(values[i]));
    } else {
      i64 i = 0;
      if (fresh) {
        for (; i < kLanes; ++i) lanes[i] = mapped(values[i]);
        fresh = false;
      }
      for (; i + kLanes <= n; i += kLanes) {
        for (i64 j = 0; j < kLanes; ++j)
          lanes[j] = R::template combine<A>(lanes[j], mapped(values[i + j]));
      }
      for (i64 j = 0; j < n - i; ++j)
        lanes[j] = R::template combine<A>(lanes[j], mapped(values[i + j]));
    }
    if (left == 0) end_piece();
  }
  BRRR_SCALAR_FN void end_piece() {
    if (in_lanes) {
      for (i64 half = kLanes / 2; half > 0; half /= 2) {
        for (i64 j = 0; j < half; ++j) lanes[j] = R::template combine<A>(lanes[j], lanes[j + half]);
      }
      total = R::template combine<A>(total, lanes[0]);
    }
    begin_piece();
  }
  BRRR_SCALAR_FN void merge(const Folded& other) {
    total = R::template combine<A>(total, other.total);
  }
};

template <class A>
struct Total {
  A total;
};
// Of each of several rows of N elements that follow one another. Short rows, which are folded
// element by element, go side by side.
template <class R, i64 N, class A, class V>
BRRR_ONCE_A_TILE void fold_rows(Total<A>* to, const V* values, i64 rows, i64 run, i64 piece) {
  i64 r = 0;
  if constexpr (N < kLanes) {
    for (; run >= N && piece >= N && r + kGroup <= rows; r += kGroup, values += kGroup * N) {
      A totals[kGroup];
      for (i64 j = 0; j < kGroup; ++j) totals[j] = R::template identity<A>();
      for (i64 i = 0; i < N; ++i) {
        V column[kGroup];
        for (i64 j = 0; j < kGroup; ++j) column[j] = values[j * N + i];
        BRRR_INDEPENDENT_ITERATIONS
#pragma GCC unroll 1  // vectors
        for (i64 j = 0; j < kGroup; ++j)
          totals[j] =
              R::template combine<A>(totals[j], R::template map<A>(static_cast<A>(column[j])));
      }
      for (i64 j = 0; j < kGroup; ++j) to[r + j].total = totals[j];
    }
  }
  for (; r < rows; ++r, values += N) to[r].total = folded<R, A>(values, N, run, piece);
}
// Adds rows of N elements to a row of accumulators, in order: four at a time, which are stored less
// often.
template <class R, i64 N, class A, class V>
BRRR_ONCE_A_TILE void fold_columns(A* to, const V* values, i64 rows) {
  const auto with = [](A x, V value) {
    return R::template combine<A>(x, R::template map<A>(static_cast<A>(value)));
  };
  i64 r = 0;
  for (; r + 4 <= rows; r += 4, values += 4 * N) {
    BRRR_INDEPENDENT_ITERATIONS
    for (i64 i = 0; i < N; ++i) {
      A x = with(with(to[i], values[i]), values[N + i]);
      to[i] = with(with(x, values[2 * N + i]), values[3 * N + i]);
    }
  }
  for (; r < rows; ++r, values += N) {
    BRRR_INDEPENDENT_ITERATIONS
    for (i64 i = 0; i < N; ++i) to[i] = with(to[i], values[i]);
  }
}

// The place of the element that comes first: NaN before everything else, of equals the lower one.
template <class R, class A>
struct Best {
  A top = A();
  i64 place = -1;

  template <class V>
  BRRR_SCALAR_FN void take(V value, i64 index) {
    const bool better =
        place < 0 || R::template before<A>(value, top) || (value != value && top == top);
    top = better ? A(value) : top;
    place = better ? index : place;
  }
};

struct Place {
  i64 place;
};
// Of a row in memory: block by block in lanes, then where in the block it is.
template <class R, class V>
BRRR_ONCE_A_TILE i64 best_of(const V* values, i64 n) {
  constexpr i64 kBlock = 1024;
  const auto beats = [](V a, V b) { return R::template before<V>(a, b) | ((a != a) & (b == b)); };
  V best = values[0];
  i64 index = 0;
  for (i64 begin = 0; begin < n; begin += kBlock) {
    const i64 m = least(kBlock, n - begin);
    V lanes[kLanes];
    for (i64 j = 0; j < kLanes; ++j) lanes[j] = best;
    i64 i = 0;
    for (; i + kLanes <= m; i += kLanes) {
      for (i64 j = 0; j < kLanes; ++j) {
        const V a = values[begin + i + j];
        lanes[j] = beats(a, lanes[j]) ? a : lanes[j];
      }
    }
    for (i64 j = 0; j < m - i; ++j) {
      const V a = values[begin + i + j];
      lanes[j] = beats(a, lanes[j]) ? a : lanes[j];
    }
    V top = lanes[0];
    for (i64 j = 1; j < kLanes; ++j) top = beats(lanes[j], top) ? lanes[j] : top;
    if (!beats(top, best)) continue;
    best = top;
    index = begin;
    while (!(values[index] == best || (best != best && values[index] != values[index]))) ++index;
  }
  return index;
}

// Reports of checks: the one of the lowest position stays.
enum FaultKind { kIndexFault, kIntegerFault, kFloatingFault };
struct FaultSink {
  Fault* fault;
  int check;
};
BRRR_FN i64 bits_of(double a) { return __builtin_bit_cast(i64, a); }
BRRR_FN i64 bits_of(i64 a) { return a; }
static __attribute__((noinline)) void report_fault(FaultSink sink, i64 position, FaultKind kind,
                                                   i64 value, i64 low, i64 high) {
  if (sink.fault->position >= 0 && sink.fault->position <= position) return;
  *sink.fault = {position, sink.check, kind, value, low, high};
}
BRRR_FN i64 index_within(i64 value, i64 bound) {
  return value < 0 ? 0 : value < bound ? value : bound - 1;
}
BRRR_FN i64 checked_index(FaultSink sink, i64 position, i64 value, i64 bound) {
  if (value >= 0 && value < bound) return value;
  report_fault(sink, position, kIndexFault, value, 0, bound);
  return index_within(value, bound);
}
template <class T, class V>
BRRR_FN T checked_range(FaultSink sink, i64 position, T given, V value, V low, V high) {
  if (!(value >= low && value <= high)) {
    report_fault(sink, position, __is_same(V, double) ? kFloatingFault : kIntegerFault,
                 bits_of(value), bits_of(low), bits_of(high));
  }
  return given;
}
