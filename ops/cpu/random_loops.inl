// Draws, block by block. The blocks of a draw are independent, so these loops vectorize across blocks.

template <class T, int width, void (*block_of)(unsigned long long, unsigned long long, unsigned int,
                                               unsigned long long, T*)>
void draw_loop(void* out, DrawKey key, i64 first, i64 blocks) {
  T* to = static_cast<T*>(out);
#pragma GCC ivdep
  for (i64 i = 0; i < blocks; ++i) {
    block_of(key.seed, key.step, key.place, static_cast<unsigned long long>(first + i), to + i * width);
  }
}

// Tables for f16 and bf16 fill f32, which the caller rounds.
constexpr void fill_random(LoopTable& table) {
  table.uniform[static_cast<int>(DType::f32)] = draw_loop<float, 4, brrr_uniform_block_f32>;
  table.uniform[static_cast<int>(DType::f16)] = draw_loop<float, 4, brrr_uniform_block_f16>;
  table.uniform[static_cast<int>(DType::bf16)] = draw_loop<float, 4, brrr_uniform_block_bf16>;
  table.uniform[static_cast<int>(DType::f64)] = draw_loop<double, 2, brrr_uniform_block_f64>;
  table.normal[static_cast<int>(DType::f32)] = draw_loop<float, 4, brrr_normal_block_f32>;
  table.normal[static_cast<int>(DType::f16)] = draw_loop<float, 4, brrr_normal_block_f32>;
  table.normal[static_cast<int>(DType::bf16)] = draw_loop<float, 4, brrr_normal_block_f32>;
  table.normal[static_cast<int>(DType::f64)] = draw_loop<double, 2, brrr_normal_block_f64>;
}
