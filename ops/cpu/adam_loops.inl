// Adam's step over contiguous elements of one type; outputs may be the memory of their inputs.

template <class T, bool decays>
void adam_loop(void* const* out, const void* const* in, const AdamNumbers& numbers, i64 n) {
  const T *param = static_cast<const T*>(in[0]), *mean = static_cast<const T*>(in[1]),
          *square = static_cast<const T*>(in[2]), *gradient = static_cast<const T*>(in[3]);
  T *new_param = static_cast<T*>(out[0]), *new_mean = static_cast<T*>(out[1]),
    *new_square = static_cast<T*>(out[2]);
  const T rate = T(numbers.rate), mean_weight = T(numbers.mean_weight),
          square_weight = T(numbers.square_weight), eps = T(numbers.eps), decay = T(numbers.decay),
          mean_of_ones = T(numbers.mean_of_ones), square_of_ones = T(numbers.square_of_ones);
  BRRR_INDEPENDENT_ITERATIONS
  for (i64 i = 0; i < n; ++i) {
    const T g = gradient[i], p = param[i];
    const T m = moved(mean[i], g, mean_weight), v = moved(square[i], g * g, square_weight);
    T down = adam_direction(m, v, mean_of_ones, square_of_ones, eps);
    if constexpr (decays) down = down + p * decay;
    new_param[i] = p - down * rate;
    new_mean[i] = m;
    new_square[i] = v;
  }
}

constexpr void fill_adam(LoopTable& table) {
  table.adam_step[static_cast<int>(DType::f32)][0] = adam_loop<float, false>;
  table.adam_step[static_cast<int>(DType::f32)][1] = adam_loop<float, true>;
  table.adam_step[static_cast<int>(DType::f64)][0] = adam_loop<double, false>;
  table.adam_step[static_cast<int>(DType::f64)][1] = adam_loop<double, true>;
}
