// Philox against its published vectors, and the distributions drawn from it.
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "tests/harness/catch.h"

namespace {

using std::sqrt;
#define BRRR_SCALAR_FN [[maybe_unused]] inline
#include "brrr/ops/jit/philox.inl"

struct Moments {
  double mean = 0, variance = 0, skew = 0, kurtosis = 0;
  explicit Moments(const std::vector<double>& values) {
    const double n = static_cast<double>(values.size());
    for (double v : values) mean += v / n;
    double m2 = 0, m3 = 0, m4 = 0;
    for (double v : values) {
      const double d = v - mean;
      m2 += d * d / n, m3 += d * d * d / n, m4 += d * d * d * d / n;
    }
    variance = m2, skew = m3 / std::pow(m2, 1.5), kurtosis = m4 / (m2 * m2);
  }
};

constexpr int kDraws = 1 << 20;

template <class T>
T element_of(T (*draw)(const brrr_block&, unsigned long long), unsigned long long seed,
             unsigned long long step, unsigned place, unsigned long long index) {
  return draw(brrr_random_block(seed, step, place, index / (16 / sizeof(T))), index);
}

}  // namespace

// kat_vectors of Random123 1.14, "philox4x32 10".
TEST_CASE("Philox4x32-10 gives the published vectors", "[philox]") {
  struct Vector {
    unsigned counter[4], key[2], expected[4];
  };
  const Vector vectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Vector& v : vectors) {
    const brrr_block block =
        brrr_philox(v.counter[0], v.counter[1], v.counter[2], v.counter[3], v.key[0], v.key[1]);
    for (int i = 0; i < 4; ++i) CHECK(block.w[i] == v.expected[i]);
  }
}

TEST_CASE("seed, step, place and block each change every word", "[philox]") {
  const brrr_block base = brrr_random_block(1, 2, 3, 4);
  const unsigned long long far = 1ull << 32;
  for (const brrr_block& other :
       {brrr_random_block(2, 2, 3, 4), brrr_random_block(1 + far, 2, 3, 4),
        brrr_random_block(1, 3, 3, 4), brrr_random_block(1, 2 + far, 3, 4),
        brrr_random_block(1, 2, 4, 4), brrr_random_block(1, 2, 3, 5),
        brrr_random_block(1, 2, 3, 4 + far)}) {
    for (int i = 0; i < 4; ++i) CHECK(base.w[i] != other.w[i]);
  }
}

TEST_CASE("one element is the same as its place in a block", "[philox]") {
  for (unsigned long long block = 0; block < 100; ++block) {
    float f[4];
    double d[2];
    brrr_uniform_block_f32(7, 8, 9, block, f);
    for (unsigned i = 0; i < 4; ++i)
      CHECK(f[i] == element_of(brrr_uniform_f32, 7, 8, 9, 4 * block + i));
    brrr_uniform_block_f16(7, 8, 9, block, f);
    for (unsigned i = 0; i < 4; ++i)
      CHECK(f[i] == element_of(brrr_uniform_f16, 7, 8, 9, 4 * block + i));
    brrr_uniform_block_bf16(7, 8, 9, block, f);
    for (unsigned i = 0; i < 4; ++i)
      CHECK(f[i] == element_of(brrr_uniform_bf16, 7, 8, 9, 4 * block + i));
    brrr_normal_block_f32(7, 8, 9, block, f);
    for (unsigned i = 0; i < 4; ++i)
      CHECK(f[i] == element_of(brrr_normal_f32, 7, 8, 9, 4 * block + i));
    brrr_uniform_block_f64(7, 8, 9, block, d);
    for (unsigned i = 0; i < 2; ++i)
      CHECK(d[i] == element_of(brrr_uniform_f64, 7, 8, 9, 2 * block + i));
    brrr_normal_block_f64(7, 8, 9, block, d);
    for (unsigned i = 0; i < 2; ++i)
      CHECK(d[i] == element_of(brrr_normal_f64, 7, 8, 9, 2 * block + i));
    bool b[8];
    brrr_bernoulli_block(7, 8, 9, block, 20000, b);
    for (unsigned i = 0; i < 8; ++i)
      CHECK(b[i] == brrr_bernoulli(brrr_random_block(7, 8, 9, block), 8 * block + i, 20000));
  }
}

TEST_CASE("uniform numbers stay in [0, 1) and have the right moments", "[philox]") {
  CHECK(brrr_uniform_24(0xffffffffu) == 1.f - 0x1p-24f);
  CHECK(brrr_uniform_11(0xffffffffu) == 1.f - 0x1p-11f);
  CHECK(brrr_uniform_8(0xffffffffu) == 1.f - 0x1p-8f);
  CHECK(brrr_uniform_53(0xffffffffu, 0xffffffffu) == 1. - 0x1p-53);
  CHECK(brrr_uniform_24(0) == 0.f);
  CHECK(brrr_uniform_53(0, 0) == 0.);
  std::vector<double> f32(kDraws), f64(kDraws);
  for (int i = 0; i < kDraws; ++i) {
    f32[static_cast<std::size_t>(i)] =
        static_cast<double>(element_of(brrr_uniform_f32, 1, 0, 0, static_cast<unsigned>(i)));
    f64[static_cast<std::size_t>(i)] =
        element_of(brrr_uniform_f64, 1, 0, 1, static_cast<unsigned>(i));
  }
  for (const auto& values : {f32, f64}) {
    const Moments m(values);
    CHECK(std::abs(m.mean - 0.5) < 5 * std::sqrt(1. / 12 / kDraws));
    CHECK(std::abs(m.variance - 1. / 12) < 1e-3);
    CHECK(std::abs(m.kurtosis - 1.8) < 1e-2);
  }
}

TEST_CASE("half-words below the threshold are true", "[philox]") {
  const brrr_block block = {{0x0001'0000, 0x8000'7fff, 0xffff'fffe, 0x1234'5678}};
  const unsigned halves[] = {0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff, 0x5678, 0x1234};
  for (const unsigned threshold : {0u, 1u, 0x5678u, 0x8000u, 0xffffu, 0x10000u}) {
    for (unsigned i = 0; i < 8; ++i)
      CHECK(brrr_bernoulli(block, 8 + i, threshold) == (halves[i] < threshold));
  }
  for (const double p : {0.1, 0.5, 0.9}) {
    const auto threshold = static_cast<unsigned>(std::llround(p * 65536));
    int drawn = 0, both = 0;
    bool last = false;
    for (int i = 0; i < kDraws; ++i) {
      const auto place = static_cast<unsigned>(i);
      const bool here = brrr_bernoulli(brrr_random_block(1, 0, 2, place / 8), place, threshold);
      drawn += here;
      both += here && last;
      last = here;
    }
    CHECK(std::abs(drawn / double{kDraws} - p) < 5 * std::sqrt(p * (1 - p) / kDraws));
    // Neighbours, which share words, are independent.
    CHECK(std::abs(both / double{kDraws} - p * p) < 5 * std::sqrt(p * p * (1 - p * p) / kDraws));
  }
}

TEST_CASE("normal numbers have the right moments", "[philox]") {
  std::vector<double> f32(kDraws), f64(kDraws);
  for (int i = 0; i < kDraws; ++i) {
    f32[static_cast<std::size_t>(i)] =
        static_cast<double>(element_of(brrr_normal_f32, 1, 0, 0, static_cast<unsigned>(i)));
    f64[static_cast<std::size_t>(i)] =
        element_of(brrr_normal_f64, 1, 0, 1, static_cast<unsigned>(i));
  }
  for (const auto& values : {f32, f64}) {
    const Moments m(values);
    CHECK(std::abs(m.mean) < 5 / std::sqrt(kDraws));
    CHECK(std::abs(m.variance - 1) < 1e-2);
    CHECK(std::abs(m.skew) < 2e-2);
    CHECK(std::abs(m.kurtosis - 3) < 5e-2);
  }
}

TEST_CASE("our logarithm and circle functions are accurate", "[philox]") {
  const double tau = 6.283185307179586;
  double worst_f = 0, worst_d = 0, worst_cs_f = 0, worst_cs_d = 0;
  const auto try_log = [&](double x) {
    const float xf = static_cast<float>(x);
    worst_f = std::max(worst_f, std::abs(static_cast<double>(brrr_log_unit(xf)) -
                                         std::log(static_cast<double>(xf))) /
                                    std::max(1., -std::log(static_cast<double>(xf))));
    worst_d =
        std::max(worst_d, std::abs(brrr_log_unit(x) - std::log(x)) / std::max(1., -std::log(x)));
  };
  for (int i = 1; i <= 100000; ++i) try_log(i * 1e-5);
  for (int e = 1; e <= 33; ++e) {
    for (double m : {0.5, 0.70710678, 0.7071068, 0.9999999}) try_log(std::ldexp(m, -e));
  }
  for (int i = 0; i <= 100000; ++i) {
    const double u = i * 1e-5;
    const float uf = static_cast<float>(u);
    float cf, sf;
    double cd, sd;
    brrr_cos_sin_turns(uf, cf, sf);
    brrr_cos_sin_turns(u, cd, sd);
    const double exact = tau * static_cast<double>(uf);
    worst_cs_f = std::max({worst_cs_f, std::abs(static_cast<double>(cf) - std::cos(exact)),
                           std::abs(static_cast<double>(sf) - std::sin(exact))});
    worst_cs_d =
        std::max({worst_cs_d, std::abs(cd - std::cos(tau * u)), std::abs(sd - std::sin(tau * u))});
  }
  CHECK(worst_f < 1e-6);
  CHECK(worst_d < 1e-13);
  CHECK(worst_cs_f < 1e-6);
  CHECK(worst_cs_d < 1e-13);
  CHECK(brrr_log_unit(1.f) == 0.f);
  CHECK(brrr_log_unit(1.) == 0.);
}
