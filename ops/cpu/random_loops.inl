// Draws, block by block. Blocks are independent: a batch of them is drawn at once, in vectors.

constexpr i64 kBatch = 32;

// Words 0 to 3 of blocks [first, first + kBatch), an array for each word. The numbers are those of
// brrr_random_block: here each round is a loop over the blocks.
struct Words {
  std::uint32_t w[4][kBatch];

  Words(const DrawKey& key, std::uint64_t first) {
    std::uint32_t k0 = static_cast<std::uint32_t>(key.seed),
                  k1 = static_cast<std::uint32_t>(key.seed >> 32);
    const std::uint32_t high_step = static_cast<std::uint32_t>(key.step >> 32) * 0x9E3779B9u;
    for (i64 j = 0; j < kBatch; ++j) {
      const std::uint64_t block = first + static_cast<std::uint64_t>(j);
      w[0][j] = static_cast<std::uint32_t>(block);
      w[1][j] = static_cast<std::uint32_t>(block >> 32) ^ high_step;
      w[2][j] = static_cast<std::uint32_t>(key.step);
      w[3][j] = key.place;
    }
    for (int round = 0; round < 10; ++round) {
      for (i64 j = 0; j < kBatch; ++j) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * w[0][j];
        const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * w[2][j];
        w[0][j] = static_cast<std::uint32_t>(p1 >> 32) ^ w[1][j] ^ k0;
        w[1][j] = static_cast<std::uint32_t>(p1);
        w[2][j] = static_cast<std::uint32_t>(p0 >> 32) ^ w[3][j] ^ k1;
        w[3][j] = static_cast<std::uint32_t>(p0);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
  }
};

// A kind of draw turns one batch of words into kBatch * width elements, in order.
template <float (*convert)(unsigned int)>
struct UniformFloat {
  using T = float;
  static constexpr i64 width = 4;
  static BRRR_SCALAR_FN void fill(float* to, const Words& words) {
    for (int i = 0; i < 4; ++i) {
      for (i64 j = 0; j < kBatch; ++j) to[j * 4 + i] = convert(words.w[i][j]);
    }
  }
};

struct UniformDouble {
  using T = double;
  static constexpr i64 width = 2;
  static BRRR_SCALAR_FN void fill(double* to, const Words& words) {
    for (i64 j = 0; j < kBatch; ++j) {
      to[j * 2] = brrr_uniform_53(words.w[0][j], words.w[1][j]);
      to[j * 2 + 1] = brrr_uniform_53(words.w[2][j], words.w[3][j]);
    }
  }
};

struct NormalFloat {
  using T = float;
  static constexpr i64 width = 4;
  static BRRR_SCALAR_FN void fill(float* to, const Words& words) {
    float even[kBatch], odd[kBatch];
    for (int pair = 0; pair < 4; pair += 2) {
      for (i64 j = 0; j < kBatch; ++j)
        brrr_normal_pair_f32(words.w[pair][j], words.w[pair + 1][j], even[j], odd[j]);
      for (i64 j = 0; j < kBatch; ++j) to[j * 4 + pair] = even[j], to[j * 4 + pair + 1] = odd[j];
    }
  }
};

struct NormalDouble {
  using T = double;
  static constexpr i64 width = 2;
  static BRRR_SCALAR_FN void fill(double* to, const Words& words) {
    double even[kBatch], odd[kBatch];
    for (i64 j = 0; j < kBatch; ++j) {
      const brrr_block block = {{words.w[0][j], words.w[1][j], words.w[2][j], words.w[3][j]}};
      brrr_normal_pair_f64(block, even[j], odd[j]);
    }
    for (i64 j = 0; j < kBatch; ++j) to[j * 2] = even[j], to[j * 2 + 1] = odd[j];
  }
};

template <class Kind>
void draw_loop(void* out, DrawKey key, i64 first, i64 blocks) {
  typename Kind::T* to = static_cast<typename Kind::T*>(out);
  i64 i = 0;
  for (; i + kBatch <= blocks; i += kBatch) {
    Kind::fill(to + i * Kind::width, Words(key, static_cast<std::uint64_t>(first + i)));
  }
  if (i < blocks) {
    typename Kind::T last[kBatch * Kind::width];
    Kind::fill(last, Words(key, static_cast<std::uint64_t>(first + i)));
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
}
