// Folds for each reduction row of ops.def. Sums of f32 accumulate in f64 and sums of integers in
// i64; all others in the element's own type. A run is folded into a fixed number of lanes, so the
// order of combination depends on its length only, and the compiler can keep the lanes in
// registers.

constexpr i64 kLanes = 32;

// Vectors of a plain `bool` do not exist; a byte of 0 or 1 behaves the same.
template <DType dtype>
struct folded {
  using type = typename element<dtype>::type;
};
template <>
struct folded<DType::boolean> {
  using type = unsigned char;
};

namespace rows {
#define K(x) T(x)
#define BRRR_REDUCTION(name, types_, rule_, map_, identity_, combine_, finish_, ...) \
  struct name##_row {                                                                \
    static constexpr DTypeSet types = dtype_sets::types_;                            \
    static constexpr DTypeRule rule = DTypeRule::rule_;                              \
    template <class T>                                                               \
    static BRRR_SCALAR_FN T map(T a) {                                               \
      return static_cast<T>(map_);                                                   \
    }                                                                                \
    template <class T>                                                               \
    static BRRR_SCALAR_FN T identity() {                                             \
      return static_cast<T>(identity_);                                              \
    }                                                                                \
    template <class T>                                                               \
    static BRRR_SCALAR_FN T combine(T x, T y) {                                      \
      return static_cast<T>(combine_);                                               \
    }                                                                                \
    template <class T>                                                               \
    static BRRR_SCALAR_FN T finish(T x, [[maybe_unused]] T n) {                      \
      return static_cast<T>(finish_);                                                \
    }                                                                                \
  };
#include "brrr/dispatch/ops.def"

#define BRRR_ARG_REDUCTION(name, before_)         \
  struct name##_row {                             \
    template <class T>                            \
    static BRRR_SCALAR_FN bool before(T a, T b) { \
      return before_;                             \
    }                                             \
  };
#include "brrr/dispatch/ops.def"
#undef K
}  // namespace rows

template <class Row, DType dtype>
struct Fold {
  static constexpr DType accumulator = reduction_accumulator(Row::rule, dtype, false);
  static constexpr DType result = result_dtype(Row::rule, dtype);
  using E = typename folded<dtype>::type;
  using A = typename folded<accumulator>::type;
  using R = typename element<result>::type;

  static BRRR_SCALAR_FN A mapped(E a) { return Row::template map<A>(static_cast<A>(a)); }
  static BRRR_SCALAR_FN A both(A x, A y) { return Row::template combine<A>(x, y); }

  static void identity(void* accumulators, i64 n) {
    A* to = static_cast<A*>(accumulators);
    for (i64 i = 0; i < n; ++i) to[i] = Row::template identity<A>();
  }

  static BRRR_SCALAR_FN A fold_run(A total, const E* in, i64 n) {
    if (n < kLanes) {
      for (i64 i = 0; i < n; ++i) total = both(total, mapped(in[i]));
      return total;
    }
    A lanes[kLanes];
    for (i64 j = 0; j < kLanes; ++j) lanes[j] = mapped(in[j]);
    i64 i = kLanes;
    for (; i + kLanes <= n; i += kLanes) {
      for (i64 j = 0; j < kLanes; ++j) lanes[j] = both(lanes[j], mapped(in[i + j]));
    }
    for (i64 j = 0; j < n - i; ++j) lanes[j] = both(lanes[j], mapped(in[i + j]));
    for (i64 half = kLanes / 2; half > 0; half /= 2) {
      for (i64 j = 0; j < half; ++j) lanes[j] = both(lanes[j], lanes[j + half]);
    }
    return both(total, lanes[0]);
  }

  static void fold_runs(void* accumulators, const void* data, i64 n, i64 rows, i64 stride) {
    A* to = static_cast<A*>(accumulators);
    const E* in = static_cast<const E*>(data);
    for (i64 r = 0; r < rows; ++r) to[r] = fold_run(to[r], in + r * stride, n);
  }

  static void fold_rows(void* accumulators, const void* data, i64 n, i64 rows, i64 stride) {
    A* to = static_cast<A*>(accumulators);
    const E* in = static_cast<const E*>(data);
    i64 r = 0;
    for (; r + 4 <= rows; r += 4, in += 4 * stride) {
      BRRR_INDEPENDENT_ITERATIONS
      for (i64 j = 0; j < n; ++j) {
        A x = both(to[j], mapped(in[j]));
        x = both(x, mapped(in[stride + j]));
        x = both(x, mapped(in[2 * stride + j]));
        to[j] = both(x, mapped(in[3 * stride + j]));
      }
    }
    for (; r < rows; ++r, in += stride) {
      BRRR_INDEPENDENT_ITERATIONS
      for (i64 j = 0; j < n; ++j) to[j] = both(to[j], mapped(in[j]));
    }
  }

  static void merge(void* accumulators, const void* others, i64 n) {
    A* to = static_cast<A*>(accumulators);
    const A* from = static_cast<const A*>(others);
    BRRR_INDEPENDENT_ITERATIONS
    for (i64 i = 0; i < n; ++i) to[i] = both(to[i], from[i]);
  }

  static void finish(void* out, const void* accumulators, i64 n, i64 count) {
    R* to = static_cast<R*>(out);
    const A* from = static_cast<const A*>(accumulators);
    for (i64 i = 0; i < n; ++i) {
      to[i] = static_cast<R>(Row::template finish<A>(from[i], static_cast<A>(count)));
    }
  }
};

template <class Row, DType dtype>
constexpr ReductionLoops reduction_for() {
  if constexpr (contains(Row::types, dtype)) {
    using F = Fold<Row, dtype>;
    return {F::accumulator, F::result, F::identity, F::fold_runs,
            F::fold_rows,   F::merge,  F::finish};
  } else {
    return {};
  }
}

template <class Row, class E>
struct Best {
  // Strictly before: a tie stays with the one that came first.
  static BRRR_SCALAR_FN bool beats(E a, E b) { return Row::before(a, b) | ((a != a) & (b == b)); }

  static i64 run(const void* data, i64 n) {
    constexpr i64 kBlock = 1024;
    const E* in = static_cast<const E*>(data);
    E best = in[0];
    i64 index = 0;
    for (i64 begin = 0; begin < n; begin += kBlock) {
      const i64 m = begin + kBlock < n ? kBlock : n - begin;
      E lanes[kLanes];
      for (i64 j = 0; j < kLanes; ++j) lanes[j] = best;
      i64 i = 0;
      for (; i + kLanes <= m; i += kLanes) {
        for (i64 j = 0; j < kLanes; ++j) {
          const E a = in[begin + i + j];
          lanes[j] = beats(a, lanes[j]) ? a : lanes[j];
        }
      }
      for (i64 j = 0; j < m - i; ++j) {
        const E a = in[begin + i + j];
        lanes[j] = beats(a, lanes[j]) ? a : lanes[j];
      }
      E top = lanes[0];
      for (i64 j = 1; j < kLanes; ++j) top = beats(lanes[j], top) ? lanes[j] : top;
      if (!beats(top, best)) continue;
      best = top;
      index = begin;
      while (!(in[index] == best || (best != best && in[index] != in[index]))) ++index;
    }
    return index;
  }

  // Indices as wide as the elements, so that both fit one vector; rows are taken in stretches that
  // such an index can count.
  static void rows(i64* index, void* best_memory, const void* data, i64 n, i64 rows, i64 stride) {
    using I = typename either<sizeof(E) == 8, i64, std::int32_t>::type;
    constexpr i64 kColumns = 64, kStretch = i64{1} << 30;
    E* best = static_cast<E*>(best_memory);
    const E* in = static_cast<const E*>(data);
    for (i64 j = 0; j < n; ++j) best[j] = in[j], index[j] = 0;
    for (i64 start = 0; start < rows; start += kStretch) {
      const i64 end = start + kStretch < rows ? start + kStretch : rows;
      for (i64 first = 0; first < n; first += kColumns) {
        const i64 columns = first + kColumns < n ? kColumns : n - first;
        I at[kColumns];
        E top[kColumns];
        for (i64 j = 0; j < columns; ++j) at[j] = -1, top[j] = best[first + j];
        for (i64 r = start; r < end; ++r) {
          const E* row = in + r * stride + first;
          for (i64 j = 0; j < columns; ++j) {
            const bool better = beats(row[j], top[j]);
            top[j] = better ? row[j] : top[j];
            at[j] = better ? static_cast<I>(r - start) : at[j];
          }
        }
        for (i64 j = 0; j < columns; ++j) {
          best[first + j] = top[j];
          if (at[j] >= 0) index[first + j] = start + at[j];
        }
      }
    }
  }
};

template <class Row>
constexpr void fill_arg(ArgLoops* row) {
#define X(e)                                                                          \
  row[static_cast<int>(DType::e)] = {Best<Row, typename folded<DType::e>::type>::run, \
                                     Best<Row, typename folded<DType::e>::type>::rows};
  BRRR_COMPUTED(X)
#undef X
}

template <class Row>
constexpr void fill_reduction(ReductionLoops* row) {
#define X(e) row[static_cast<int>(DType::e)] = reduction_for<Row, DType::e>();
  BRRR_COMPUTED(X)
#undef X
}

constexpr void fill_reductions(LoopTable& table) {
  int row = 0;
#define BRRR_REDUCTION(name, ...) fill_reduction<rows::name##_row>(table.reduction[row++]);
#include "brrr/dispatch/ops.def"
  row = 0;
#define BRRR_ARG_REDUCTION(name, ...) fill_arg<rows::name##_row>(table.arg_reduction[row++]);
#include "brrr/dispatch/ops.def"
}
