// Draws in batches of blocks, for stamped loops and generated kernels. Blocks are independent: a
// batch of them is drawn at once, in vectors. A kind of draw turns a batch of words into
// kBatch * width elements, in order, or a block into one of its elements; bernoulli alone has a
// threshold. Includes nothing.

constexpr i64 kBatch = 32;

// Words 0 to 3 of blocks [first, first + kBatch), an array for each word. The numbers are those of
// brrr_random_block: here each round is a loop over the blocks.
struct Words {
  unsigned int w[4][kBatch];

  Words(unsigned long long seed, unsigned long long step, unsigned int place,
        unsigned long long first) {
    unsigned int k0 = static_cast<unsigned int>(seed), k1 = static_cast<unsigned int>(seed >> 32);
    const unsigned int high_step = static_cast<unsigned int>(step >> 32) * 0x9E3779B9u;
    for (i64 j = 0; j < kBatch; ++j) {
      const unsigned long long block = first + static_cast<unsigned long long>(j);
      w[0][j] = static_cast<unsigned int>(block);
      w[1][j] = static_cast<unsigned int>(block >> 32) ^ high_step;
      w[2][j] = static_cast<unsigned int>(step);
      w[3][j] = place;
    }
    for (int round = 0; round < 10; ++round) {
      for (i64 j = 0; j < kBatch; ++j) {
        const unsigned long long p0 = 0xD2511F53ull * w[0][j], p1 = 0xCD9E8D57ull * w[2][j];
        w[0][j] = static_cast<unsigned int>(p1 >> 32) ^ w[1][j] ^ k0;
        w[1][j] = static_cast<unsigned int>(p1);
        w[2][j] = static_cast<unsigned int>(p0 >> 32) ^ w[3][j] ^ k1;
        w[3][j] = static_cast<unsigned int>(p0);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
  }
};

template <float (*convert)(unsigned int)>
struct UniformFloat {
  using T = float;
  static constexpr i64 width = 4;
  static BRRR_SCALAR_FN void fill(float* to, const Words& words, unsigned int = 0) {
    for (int i = 0; i < 4; ++i) {
      for (i64 j = 0; j < kBatch; ++j) to[j * 4 + i] = convert(words.w[i][j]);
    }
  }
  static BRRR_SCALAR_FN float at(const brrr_block& block, unsigned long long index,
                                 unsigned int = 0) {
    return convert(brrr_word(block, index));
  }
};

struct UniformDouble {
  using T = double;
  static constexpr i64 width = 2;
  static BRRR_SCALAR_FN void fill(double* to, const Words& words, unsigned int = 0) {
    for (i64 j = 0; j < kBatch; ++j) {
      to[j * 2] = brrr_uniform_53(words.w[0][j], words.w[1][j]);
      to[j * 2 + 1] = brrr_uniform_53(words.w[2][j], words.w[3][j]);
    }
  }
  static BRRR_SCALAR_FN double at(const brrr_block& block, unsigned long long index,
                                  unsigned int = 0) {
    return brrr_uniform_f64(block, index);
  }
};

struct NormalFloat {
  using T = float;
  static constexpr i64 width = 4;
  static BRRR_SCALAR_FN void fill(float* to, const Words& words, unsigned int = 0) {
    float even[kBatch], odd[kBatch];
    for (int pair = 0; pair < 4; pair += 2) {
      for (i64 j = 0; j < kBatch; ++j)
        brrr_normal_pair_f32(words.w[pair][j], words.w[pair + 1][j], even[j], odd[j]);
      for (i64 j = 0; j < kBatch; ++j) to[j * 4 + pair] = even[j], to[j * 4 + pair + 1] = odd[j];
    }
  }
  static BRRR_SCALAR_FN float at(const brrr_block& block, unsigned long long index,
                                 unsigned int = 0) {
    return brrr_normal_f32(block, index);
  }
};

struct NormalDouble {
  using T = double;
  static constexpr i64 width = 2;
  static BRRR_SCALAR_FN void fill(double* to, const Words& words, unsigned int = 0) {
    double even[kBatch], odd[kBatch];
    for (i64 j = 0; j < kBatch; ++j) {
      const brrr_block block = {{words.w[0][j], words.w[1][j], words.w[2][j], words.w[3][j]}};
      brrr_normal_pair_f64(block, even[j], odd[j]);
    }
    for (i64 j = 0; j < kBatch; ++j) to[j * 2] = even[j], to[j * 2 + 1] = odd[j];
  }
  static BRRR_SCALAR_FN double at(const brrr_block& block, unsigned long long index,
                                  unsigned int = 0) {
    return brrr_normal_f64(block, index);
  }
};

struct Bernoulli {
  using T = unsigned char;
  static constexpr i64 width = 8;
  static BRRR_SCALAR_FN void fill(T* to, const Words& words, unsigned int threshold) {
    for (int i = 0; i < 4; ++i) {
      for (i64 j = 0; j < kBatch; ++j) {
        to[j * 8 + 2 * i] = (words.w[i][j] & 0xffffu) < threshold;
        to[j * 8 + 2 * i + 1] = (words.w[i][j] >> 16) < threshold;
      }
    }
  }
  static BRRR_SCALAR_FN T at(const brrr_block& block, unsigned long long index,
                             unsigned int threshold) {
    return brrr_bernoulli(block, index, threshold);
  }
};
