// The table of conversions between any two element types.

template <DType>
struct element;
template <>
struct element<DType::f32> {
  using type = float;
};
template <>
struct element<DType::f64> {
  using type = double;
};
template <>
struct element<DType::f16> {
  using type = f16;
};
template <>
struct element<DType::bf16> {
  using type = bf16;
};
template <>
struct element<DType::i32> {
  using type = std::int32_t;
};
template <>
struct element<DType::i64> {
  using type = i64;
};
template <>
struct element<DType::boolean> {
  using type = bool;
};

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
