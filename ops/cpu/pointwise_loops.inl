// One contiguous loop for each pointwise row of ops.def and each type that it computes in.
//
// A loop over an expression that calls libm is run on whole groups of eight only, the rest through
// a padded buffer: the vector form computes every element, so a result does not depend on its
// position in a tensor. So is a selection among selections (clamp).

constexpr i64 kGroup = 8;

namespace rows {
#define K(x) T(x)
#define BRRR_ROW(name, types_, rule_, expression)                                                  \
  static constexpr DTypeSet types = dtype_sets::types_;                                            \
  static constexpr DTypeRule rule = DTypeRule::rule_;                                              \
  static constexpr Terms terms = [](Terms a, [[maybe_unused]] Terms b, [[maybe_unused]] Terms c) { \
    using T [[maybe_unused]] = Terms;                                                              \
    return expression;                                                                             \
  }({}, {}, {});                                                                                   \
  static constexpr bool in_lanes = terms.inexact || terms.clamps;
#define BRRR_UNARY(name, types_, rule_, low, high, expression, ...) \
  struct name##_row {                                               \
    BRRR_ROW(name, types_, rule_, expression)                       \
    template <class T>                                              \
    static BRRR_SCALAR_FN auto apply(T a) {                         \
      return expression;                                            \
    }                                                               \
  };
#define BRRR_BINARY(name, types_, rule_, low, high, expression, ...) \
  struct name##_row {                                                \
    BRRR_ROW(name, types_, rule_, expression)                        \
    template <class T>                                               \
    static BRRR_SCALAR_FN auto apply(T a, T b) {                     \
      return expression;                                             \
    }                                                                \
  };
#define BRRR_TERNARY(name, types_, rule_, low, high, expression, ...) \
  struct name##_row {                                                 \
    BRRR_ROW(name, types_, rule_, expression)                         \
    template <class A, class T>                                       \
    static BRRR_SCALAR_FN auto apply(A a, T b, T c) {                 \
      return expression;                                              \
    }                                                                 \
  };
#include "brrr/dispatch/ops.def"
#undef BRRR_ROW
#undef K
}  // namespace rows

template <class Row, class Out, class A>
void loop_over(Out* out, const A* a, i64 n) {
  BRRR_INDEPENDENT_ITERATIONS
  for (i64 i = 0; i < n; ++i) out[i] = static_cast<Out>(Row::apply(a[i]));
}
template <class Row, class Out, class A, class B>
void loop_over(Out* out, const A* a, const B* b, i64 n) {
  BRRR_INDEPENDENT_ITERATIONS
  for (i64 i = 0; i < n; ++i) out[i] = static_cast<Out>(Row::apply(a[i], b[i]));
}
template <class Row, class Out, class A, class B, class C>
void loop_over(Out* out, const A* a, const B* b, const C* c, i64 n) {
  BRRR_INDEPENDENT_ITERATIONS
  for (i64 i = 0; i < n; ++i) out[i] = static_cast<Out>(Row::apply(a[i], b[i], c[i]));
}

// n is a multiple of the group.
template <class Row, class T, class... In>
__attribute__((noinline)) void whole_groups(i64 n, T* out, const In*... in) {
#if BRRR_VECTOR_MATH
  for (i64 i = 0; i < n; i += Lanes<T>::count) Row::apply(Lanes<T>::load(in + i)...).store(out + i);
#else
  loop_over<Row>(out, in..., n);
#endif
}

template <class T>
struct Padded {
  alignas(64) T values[kGroup];
  Padded(const T* from, i64 n) {
    for (i64 i = 0; i < kGroup; ++i) values[i] = from[i < n ? i : 0];
  }
};

template <class Row, class Out, class... In>
BRRR_SCALAR_FN void run_row(i64 n, Out* out, const In*... in) {
  if constexpr (Row::in_lanes && scalar_traits<Out>::floating) {
    const i64 whole = n & -kGroup, rest = n - whole;
    if (whole) whole_groups<Row>(whole, out, in...);
    if (rest) {
      alignas(64) Out results[kGroup];
      whole_groups<Row>(kGroup, results,
                        static_cast<const In*>(Padded<In>(in + whole, rest).values)...);
      for (i64 i = 0; i < rest; ++i) out[whole + i] = results[i];
    }
  } else {
    loop_over<Row>(out, in..., n);
  }
}

template <bool condition, class A, class B>
struct either {
  using type = A;
};
template <class A, class B>
struct either<false, A, B> {
  using type = B;
};

template <class Row, class T, int arity>
void pointwise_loop(void* out, const void* const* in, i64 n) {
  using Out = typename either<Row::rule == DTypeRule::predicate, bool, T>::type;
  Out* o = static_cast<Out*>(out);
  if constexpr (arity == 1) {
    run_row<Row>(n, o, static_cast<const T*>(in[0]));
  } else if constexpr (arity == 2) {
    run_row<Row>(n, o, static_cast<const T*>(in[0]), static_cast<const T*>(in[1]));
  } else if constexpr (Row::rule == DTypeRule::select) {
    // A bool read as a byte: the compiler has no vectors of bool to choose by. What is chosen may
    // be bytes too.
    using V = typename either<__is_same(T, bool), unsigned char, T>::type;
    run_row<Row>(n, static_cast<V*>(out), static_cast<const unsigned char*>(in[0]),
                 static_cast<const V*>(in[1]), static_cast<const V*>(in[2]));
  } else {
    run_row<Row>(n, o, static_cast<const T*>(in[0]), static_cast<const T*>(in[1]),
                 static_cast<const T*>(in[2]));
  }
}

template <class Row, int arity, DType dtype>
constexpr Loop loop_for() {
  if constexpr (contains(Row::types, dtype)) {
    return pointwise_loop<Row, typename element<dtype>::type, arity>;
  } else {
    return nullptr;
  }
}

template <class Row, int arity>
constexpr void fill_row(Loop* row) {
#define X(e) row[static_cast<int>(DType::e)] = loop_for<Row, arity, DType::e>();
  BRRR_COMPUTED(X)
#undef X
}

constexpr void fill_pointwise(LoopTable& table) {
  int row = 0;
#define BRRR_UNARY(name, ...) fill_row<rows::name##_row, 1>(table.pointwise[row++]);
#define BRRR_BINARY(name, ...) fill_row<rows::name##_row, 2>(table.pointwise[row++]);
#define BRRR_TERNARY(name, ...) fill_row<rows::name##_row, 3>(table.pointwise[row++]);
#include "brrr/dispatch/ops.def"
}
