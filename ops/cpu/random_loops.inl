// Draws, block by block: draw_batches.inl has their numbers.

template <class Kind>
void draw_loop(void* out, DrawKey key, i64 first, i64 blocks) {
  typename Kind::T* to = static_cast<typename Kind::T*>(out);
  i64 i = 0;
  for (; i + kBatch <= blocks; i += kBatch) {
    Kind::fill(to + i * Kind::width,
               Words(key.seed, key.step, key.place, static_cast<std::uint64_t>(first + i)),
               key.threshold);
  }
  if (i < blocks) {
    typename Kind::T last[kBatch * Kind::width];
    Kind::fill(last, Words(key.seed, key.step, key.place, static_cast<std::uint64_t>(first + i)),
               key.threshold);
    for (i64 j = 0; j < (blocks - i) * Kind::width; ++j) to[i * Kind::width + j] = last[j];
  }
}

// Tables for f16 and bf16 fill f32, which the caller rounds.
constexpr void fill_random(LoopTable& table) {
  table.uniform[static_cast<int>(DType::f32)] = draw_loop<UniformFloat<brrr_uniform_24>>;
  table.uniform[static_cast<int>(DType::f16)] = draw_loop<UniformFloat<brrr_uniform_11>>;
  table.uniform[static_cast<int>(DType::bf16)] = draw_loop<UniformFloat<brrr_uniform_8>>;
  table.uniform[static_cast<int>(DType::f64)] = draw_loop<UniformDouble>;
  table.normal[static_cast<int>(DType::f32)] = draw_loop<NormalFloat>;
  table.normal[static_cast<int>(DType::f16)] = draw_loop<NormalFloat>;
  table.normal[static_cast<int>(DType::bf16)] = draw_loop<NormalFloat>;
  table.normal[static_cast<int>(DType::f64)] = draw_loop<NormalDouble>;
  table.bernoulli = draw_loop<Bernoulli>;
}
