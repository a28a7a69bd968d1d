// Indexing, concatenation, cumulative sums and random draws on a GPU against the CPU, beyond the
// forward matrix: indices out of range, large and uneven sizes, order of additions.
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"

using namespace brrr;
using testing::error_of;
using testing::same_bits;

namespace {

Tensor indices(const Dims& shape, std::int64_t bound, DType dtype, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> values;
  std::int64_t count = 1;
  for (std::int64_t d : shape) count *= d;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound)));
  return to(tensor(values, shape), dtype);
}

const Device kGpu = cuda();

}  // namespace

TEST_CASE("gather and index_select on CUDA agree with the CPU", "[gpu][structured]") {
  for (const DType dtype : {f32, f64, f16, bf16, i32, i64, boolean}) {
    const Tensor x = to(rand({13, 40, 24}), f32), values = to(x * 10, dtype);
    const Tensor device_values = to(values, kGpu);
    for (const DType index_type : {i32, i64}) {
      for (int dim = 0; dim < 3; ++dim) {
        const Tensor index = indices({5, 11, 7}, values.size(dim), index_type, 3);
        CHECK(same_bits(gather(values, dim, index),
                        to(gather(device_values, dim, to(index, kGpu)), cpu)));
        const Tensor rows = indices({31}, values.size(dim), index_type, 4);
        CHECK(same_bits(index_select(values, dim, rows),
                        to(index_select(device_values, dim, to(rows, kGpu)), cpu)));
        const Tensor transposed = transpose(device_values, 0, 2);
        CHECK(same_bits(index_select(transpose(values, 0, 2), 2 - dim, rows),
                        to(index_select(transposed, 2 - dim, to(rows, kGpu)), cpu)));
      }
    }
  }
}

TEST_CASE(
    "an index out of range on CUDA is an error at the next wait, after which the device works",
    "[gpu][structured]") {
  const Tensor x = to(rand({5, 8}), kGpu);
  const auto bad = [](std::vector<std::int64_t> values) {
    const auto count = static_cast<std::int64_t>(values.size());
    return to(tensor(values, {count}), kGpu);
  };
  for (int round = 0; round < 3; ++round) {
    CHECK(error_of([&] {
            index_select(x, 0, bad({0, 1, 2, 7, 9}));
            synchronize(kGpu);
          }) == "[index_select] expected indices in [0, 5), got 7 at position 3");
    synchronize(kGpu);
    CHECK(error_of([&] {
            to(index_select(x, 0, bad({4, -1})), cpu);
          }) == "[index_select] expected indices in [0, 5), got -1 at position 1");
    CHECK(error_of([&] {
            gather(x, 1, unsqueeze(bad({0, 8, 1}), 1));
            synchronize(kGpu);
          }) == "[gather] expected indices in [0, 8), got 8 at position 1");
    CHECK(error_of([&] {
            scatter_add(x, 0, unsqueeze(bad({0, 5}), 1), ones({2, 1}, {.device = kGpu}));
            synchronize(kGpu);
          }) == "[scatter_add] expected indices in [0, 5), got 5 at position 1");
    CHECK(error_of([&] {
            to(one_hot(bad({0, 1, -7}), 5), cpu);
          }) == "[one_hot] expected values in [0, 4], got -7 at position 2");
    CHECK(error_of([&] { to(bernoulli(x * 2 - 1.5), cpu); }) ==
          error_of([&] { bernoulli(to(x * 2 - 1.5, cpu)); }));
    CHECK(error_of([&] { to(embedding(x, bad({7})), cpu); }) ==
          "[embedding] expected indices in [0, 5), got 7 at position 0");
    // A million faults: the first position is the one told.
    CHECK(error_of([&] {
            index_select(x, 0, full({1 << 20}, 6, {.dtype = i64, .device = kGpu}));
            synchronize(kGpu);
          }) == "[index_select] expected indices in [0, 5), got 6 at position 0");
  }
  CHECK(same_bits(to(index_select(x, 0, bad({4, 0})), cpu),
                  index_select(to(x, cpu), 0, to(bad({4, 0}), cpu))));
}

TEST_CASE("scatter_add on CUDA adds in the order of the index", "[gpu][structured]") {
  struct Case {
    Dims base, index, source;
    int dim;
  };
  const std::vector<Case> cases = {
      {{7}, {5000}, {5000}, 0},             // one line, many duplicates: sorted
      {{100000}, {30000}, {30000}, 0},      // one line, few duplicates
      {{50, 20}, {3, 20}, {3, 20}, 0},      // short lines: serial
      {{50, 20}, {300, 15}, {310, 20}, 0},  // long lines of their own: sorted by element
      {{20, 50}, {20, 300}, {20, 300}, 1},
      {{3, 40, 5}, {3, 200, 4}, {3, 200, 5}, 1},
      {{64, 10}, {64, 1}, {64, 1}, 1},  // a loss's gradient: one place a line
  };
  for (const Case& c : cases) {
    for (const DType dtype : {f32, f64, i64, bf16}) {
      const Tensor base = to(rand(c.base) * 8, dtype), source = to(randn(c.source) * 8, dtype);
      const Tensor index = indices(c.index, c.base[c.dim], i64, 9);
      const Tensor expected = scatter_add(base, c.dim, index, source);
      const Tensor first = scatter_add(to(base, kGpu), c.dim, to(index, kGpu), to(source, kGpu));
      INFO(base.describe() << " " << index.describe() << " dim " << c.dim);
      CHECK(same_bits(expected, to(first, cpu)));
      for (int i = 0; i < 5; ++i) {
        CHECK(same_bits(
            to(scatter_add(to(base, kGpu), c.dim, to(index, kGpu), to(source, kGpu)), cpu),
            to(first, cpu)));
      }
    }
  }
}

TEST_CASE("the gradient of an embedding is the same every time and as on the CPU",
          "[gpu][structured]") {
  for (const std::int64_t width : {1, 5, 64, 300, 1024}) {
    const Tensor index = indices({4096}, 1000, i64, 21), gradient = randn({4096, width}),
                 base = zeros({1000, width});
    const Tensor wide = expand(unsqueeze(index, 1), {4096, width});
    const Tensor expected = scatter_add(base, 0, wide, gradient);
    const Tensor on_gpu = expand(unsqueeze(to(index, kGpu), 1), {4096, width});
    for (int i = 0; i < 3; ++i)
      CHECK(
          same_bits(expected, to(scatter_add(to(base, kGpu), 0, on_gpu, to(gradient, kGpu)), cpu)));
  }
}

TEST_CASE("cat on CUDA joins many, large, unaligned and strided parts", "[gpu][structured]") {
  for (const DType dtype : {f32, bf16, boolean, i64}) {
    for (int dim = 0; dim < 3; ++dim) {
      std::vector<Tensor> parts, on_gpu;
      for (int i = 0; i < 150; ++i) {
        Dims shape{4, 6, 5};
        shape[dim] = i % 9;
        Tensor part = to(rand(shape) * 4, dtype);
        Tensor moved = to(part, kGpu);
        if (i % 3 == 1) {
          part = transpose(contiguous(transpose(part, 0, 2)), 0, 2);
          moved = transpose(contiguous(transpose(moved, 0, 2)), 0, 2);
        }
        parts.push_back(part);
        on_gpu.push_back(moved);
      }
      CHECK(same_bits(cat(parts, dim), to(cat(on_gpu, dim), cpu)));
    }
  }
  const Tensor big = rand({1000, 999}), other = rand({1000, 3});
  CHECK(
      same_bits(cat({big, other, slice(big, 1, 5, 17)}, 1),
                to(cat({to(big, kGpu), to(other, kGpu), slice(to(big, kGpu), 1, 5, 17)}, 1), cpu)));
}

TEST_CASE("running sums on CUDA agree with the CPU", "[gpu][structured]") {
  for (const DType dtype : {i32, i64, boolean, f32, f64, f16, bf16}) {
    for (const Dims& shape : {Dims{1}, Dims{100000}, Dims{3, 70000}, Dims{2000, 33},
                              Dims{5, 3000, 7}, Dims{1, 9000, 64}}) {
      const Tensor x = to(rand(shape) * 2, dtype), on_gpu = to(x, kGpu);
      for (int dim = 0; dim < x.rank(); ++dim) {
        const Tensor expected = cumsum(x, dim), got = to(cumsum(on_gpu, dim), cpu);
        INFO(x.describe() << " dim " << dim);
        if (!is_floating(dtype)) {
          CHECK(same_bits(expected, got));
          continue;
        }
        REQUIRE(got.dtype() == expected.dtype());
        const std::vector<double> e = to_vector<double>(to(expected, f64)),
                                  g = to_vector<double>(to(got, f64));
        const double step = dtype == f64   ? 1e-12
                            : dtype == f32 ? 2.4e-7
                            : dtype == f16 ? 2e-3
                                           : 1.6e-2;
        double worst = 0;
        for (std::size_t i = 0; i < e.size(); ++i) {
          if (e[i] != g[i]) worst = std::max(worst, std::abs(e[i] - g[i]) / std::abs(e[i]));
        }
        CHECK(worst <= step);
        CHECK(same_bits(got, to(cumsum(on_gpu, dim), cpu)));
      }
    }
  }
}

TEST_CASE("draws on CUDA have the bits of the CPU's", "[gpu][structured]") {
  for (const DType dtype : {f32, f64, f16, bf16}) {
    for (const std::int64_t count : {1, 2, 3, 5, 1000, 1000003}) {
      manual_seed(77);
      const Tensor u = rand({count}, {.dtype = dtype}), n = randn({count}, {.dtype = dtype});
      manual_seed(77);
      const Tensor gu = rand({count}, {.dtype = dtype, .device = kGpu}),
                   gn = randn({count}, {.dtype = dtype, .device = kGpu});
      CHECK(same_bits(u, to(gu, cpu)));
      CHECK(same_bits(n, to(gn, cpu)));
    }
  }
}
