// The table of conversions between any two element types.

template <DType>
struct element;
#define X(e, cpp)            \
  template <>                \
  struct element<DType::e> { \
    using type = cpp;        \
  };
X(f32, float)
X(f64, double)
X(f16, f16)
X(bf16, bf16)
X(i32, std::int32_t)
X(i64, i64)
X(boolean, bool)
#undef X

// The types that rows compute in.
#define BRRR_COMPUTED(X) X(f32) X(f64) X(i32) X(i64) X(boolean)

template <DType From>
constexpr void fill_convert_from(LoopTable& table) {
  using F = typename element<From>::type;
#define X(e, cpp, text)                                               \
  table.convert[static_cast<int>(From)][static_cast<int>(DType::e)] = \
      convert_loop<typename element<DType::e>::type, F>;
  BRRR_DTYPES(X)
#undef X
}

constexpr void fill_convert(LoopTable& table) {
#define X(e, cpp, text) fill_convert_from<DType::e>(table);
  BRRR_DTYPES(X)
#undef X
}
