// Matrix products on a GPU: the error bound over shapes, dtypes, layouts and batches; the measured
// choice of algorithms and its cache; equal bits from run to run.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "brrr/ops/cuda/matmul_plan.h"
#include "brrr/ops/cuda/matmul_small.h"
#include "brrr/ops/cuda/matmul_tuning.h"
#include "brrr/ops/cuda/transpose.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"
#include "tests/harness/catch.h"

using namespace brrr;

namespace {

// The relative rounding of a product's factors and of its result.
double factor_rounding(DType dtype, bool tf32) { return dtype == f32 && tf32 ? 0x1p-11 : 0; }
double result_rounding(DType dtype) {
  return dtype == f64 ? 0x1p-53 : dtype == f32 ? 0x1p-24 : dtype == f16 ? 0x1p-11 : 0x1p-8;
}
double sum_rounding(DType dtype) { return dtype == f64 ? 0x1p-53 : 0x1p-24; }

struct Problem {
  Dims a, b;
  bool transposed_a = false, transposed_b = false;  // of the last two dimensions
  DType dtype = f32;
  bool tf32 = false;
};

// Values rounded to the type, so that the reference multiplies the same numbers.
Tensor operand(const Dims& shape, bool transposed, DType dtype, std::uint64_t seed) {
  Dims stored(shape);
  const int rank = stored.size();
  if (transposed) std::swap(stored[rank - 2], stored[rank - 1]);
  std::mt19937_64 random(seed);
  std::vector<double> values;
  std::int64_t count = 1;
  for (std::int64_t d : stored) count *= d;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  const Tensor x = to(tensor(values, stored), dtype);
  return transposed ? transpose(x, -1, -2) : x;
}

// The largest error in units of what may be: gamma_K (|A| |B|), the rounding of factors, and that
// of the result.
double error_ratio(const Problem& p, const Tensor& a, const Tensor& b, const Tensor& on_gpu) {
  const Tensor wide_a = to(a, f64), wide_b = to(b, f64);
  const std::vector<double> exact = to_vector<double>(matmul(wide_a, wide_b));
  const std::vector<double> magnitude = to_vector<double>(matmul(abs(wide_a), abs(wide_b)));
  const std::vector<double> got = to_vector<double>(to(to(on_gpu, cpu), f64));
  const auto depth = static_cast<double>(a.size(-1));
  const double u = sum_rounding(p.dtype), gamma = (depth + 1) * u / (1 - (depth + 1) * u);
  const double factors = 2.01 * factor_rounding(p.dtype, p.tf32);
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double bound = (gamma + factors) * magnitude[i] +
                         result_rounding(p.dtype) * std::abs(exact[i]) * (1 + gamma) +
                         (p.dtype == f16 ? 0x1p-25 : 1e-300);
    worst = std::max(worst, std::abs(got[i] - exact[i]) / bound);
    if (std::isnan(got[i])) return INFINITY;
  }
  return worst;
}

double check(const Problem& p, std::uint64_t seed) {
  const Tensor a = operand(p.a, p.transposed_a, p.dtype, seed),
               b = operand(p.b, p.transposed_b, p.dtype, seed + 1);
  MatmulPrecisionGuard precision(p.tf32 ? Precision::tf32 : Precision::full);
  const Tensor on_a = to(a, cuda()), on_b = to(b, cuda());
  // Copies to a device may have another layout: transpose again.
  const auto again = [](const Tensor& x, bool transposed) {
    return transposed ? transpose(contiguous(transpose(x, -1, -2)), -1, -2) : contiguous(x);
  };
  return error_ratio(p, a, b, matmul(again(on_a, p.transposed_a), again(on_b, p.transposed_b)));
}

struct CacheDirectory {
  std::string path = (std::filesystem::temp_directory_path() / "brrr_gpu_matmul_test").string();
  std::string before = std::getenv("BRRR_CACHE_DIR") ? std::getenv("BRRR_CACHE_DIR") : "";
  CacheDirectory() {
    std::filesystem::remove_all(path);
    setenv("BRRR_CACHE_DIR", path.c_str(), 1);
  }
  ~CacheDirectory() {
    before.empty() ? unsetenv("BRRR_CACHE_DIR") : setenv("BRRR_CACHE_DIR", before.c_str(), 1);
    std::filesystem::remove_all(path);
  }
};

}  // namespace

TEST_CASE("products are within their error bound over shapes, types, layouts and batches",
          "[gpu][matmul]") {
  std::mt19937_64 random(11);
  const auto size = [&] {
    constexpr std::int64_t kSizes[] = {1,  2,  3,   7,   8,   16,  31,  32,  33, 63,
                                       64, 65, 100, 127, 128, 129, 200, 256, 257};
    return kSizes[random() % std::size(kSizes)];
  };
  struct Batches {
    Dims a, b;
  };
  const std::vector<Batches> batches = {{{}, {}},         {{}, {}},          {{}, {}},
                                        {{3}, {3}},       {{3}, {}},         {{}, {3}},
                                        {{2, 3}, {2, 3}}, {{2, 1}, {1, 3}},  {{2, 3}, {3}},
                                        {{4, 1}, {5}},    {{20, 1}, {1, 20}}};
  constexpr DType kTypes[] = {f32, f32, bf16, f16, f64};
  double worst = 0;
  for (int i = 0; i < 500; ++i) {
    Problem p;
    const Batches& batch = batches[random() % batches.size()];
    const bool many = batch.a.size() > 0 && batch.a[0] == 20;
    const std::int64_t m = many ? 9 : size(), n = many ? 17 : size(),
                       k = size() * (random() % 8 == 0 ? 16 : 1);
    p.a = batch.a;
    p.a.push_back(m);
    p.a.push_back(k);
    p.b = batch.b;
    p.b.push_back(k);
    p.b.push_back(n);
    p.transposed_a = random() % 2;
    p.transposed_b = random() % 2;
    p.dtype = kTypes[random() % std::size(kTypes)];
    p.tf32 = p.dtype == f32 && random() % 2;
    const double ratio = check(p, static_cast<std::uint64_t>(i) * 2);
    worst = std::max(worst, ratio);
    INFO("case " << i << ": " << name_of(p.dtype) << to_string(p.a) << (p.transposed_a ? "'" : "")
                 << " x " << to_string(p.b) << (p.transposed_b ? "'" : "")
                 << (p.tf32 ? " tf32" : ""));
    CHECK(ratio <= 1);
  }
  std::printf("matmul: largest error over 500 products is %.3f of the bound\n", worst);
}

namespace {

// Both ways of one product, whichever the rule would take.
Tensor by_small(const Tensor& a, const Tensor& b, const Tensor* row = nullptr) {
  Tensor d = full({a.size(0), b.size(1)}, 77, {.dtype = a.dtype(), .device = cuda()});
  on_cuda::multiply_small(on_cuda::product_of(a, b, d), a, b, row, d, cu::current_stream(cuda()));
  return d;
}
Tensor by_library(const Tensor& a, const Tensor& b) {
  const Tensor d = full({a.size(0), b.size(1)}, 77, {.dtype = a.dtype(), .device = cuda()});
  auto given = on_cuda::as_library_product(on_cuda::product_of(a, b, d));
  REQUIRE(given);
  REQUIRE(!given->exchanged);
  given->key.dtype = a.dtype();
  given->key.tf32 = a.dtype() == f32;
  given->key.align_x = on_cuda::alignment_class(b.data());
  given->key.align_y = on_cuda::alignment_class(a.data());
  on_cuda::MatmulOperands operands;
  operands.x = b.data();
  operands.y = a.data();
  operands.d = d.data();
  cu::CudaStream& stream = cu::current_stream(cuda());
  on_cuda::run(on_cuda::plan_for(given->key, operands, stream), operands, stream);
  return d;
}

// The same values in other places: as they are, the other way round, with a gap behind every line,
// with one between all elements.
std::vector<Tensor> placed(const Tensor& x) {
  const Tensor flat = to(x, cuda());
  std::vector<Tensor> all = {flat, transpose(contiguous(transpose(flat, 0, 1)), 0, 1)};
  for (const std::int64_t step : {1, 2}) {
    Tensor wide = zeros({x.size(0), x.size(1) * step + 3}, {.dtype = x.dtype(), .device = cuda()});
    Tensor view = slice(wide, 1, 0, x.size(1) * step, step);
    copy_(view, flat);
    all.push_back(view);
  }
  return all;
}

}  // namespace

TEST_CASE("small products are within the bound and have the same bits in every layout",
          "[gpu][matmul]") {
  double worst_small = 0, worst_library = 0;
  for (const DType dtype : {f32, f16, bf16}) {
    for (const Dims& mnk :
         {Dims{64, 128, 128}, Dims{32, 64, 64}, Dims{128, 256, 256}, Dims{1, 1, 1}, Dims{16, 16, 1},
          Dims{17, 33, 9}, Dims{40, 72, 24}, Dims{100, 50, 1000}, Dims{7, 250, 129},
          Dims{300, 200, 1500}, Dims{1, 512, 512}, Dims{512, 1, 64}}) {
      const std::int64_t m = mnk[0], n = mnk[1], k = mnk[2];
      const Problem p{{m, k}, {k, n}, false, false, dtype, dtype == f32};
      const Tensor a = operand({m, k}, false, dtype, 3), b = operand({k, n}, false, dtype, 4);
      INFO(name_of(dtype) << " " << m << " x " << n << " x " << k);
      std::vector<double> first;
      for (const Tensor& on_a : placed(a)) {
        for (const Tensor& on_b : placed(b)) {
          const Tensor d = by_small(on_a, on_b);
          const std::vector<double> values = to_vector<double>(to(d, f64));
          if (first.empty()) first = values;
          CHECK(values == first);
          const double ratio = error_ratio(p, a, b, d);
          worst_small = std::max(worst_small, ratio);
          CHECK(ratio <= 1);
        }
      }
      if (n == 1) continue;
      const double ratio = error_ratio(p, a, b, by_library(to(a, cuda()), to(b, cuda())));
      worst_library = std::max(worst_library, ratio);
      CHECK(ratio <= 1);
    }
  }
  std::printf("matmul: largest error of small products is %.3f of the bound, the library's %.3f\n",
              worst_small, worst_library);
}

TEST_CASE("small products add a row, and write to their output only", "[gpu][matmul]") {
  const MatmulPrecisionGuard tf32(Precision::tf32);
  for (const DType dtype : {f32, bf16}) {
    const Tensor a = operand({33, 40}, false, dtype, 3), b = operand({40, 50}, false, dtype, 4);
    const Tensor row = operand({100}, false, dtype, 5);
    const Tensor on_a = to(a, cuda()), on_b = to(b, cuda()), on_row = to(row, cuda());
    const Tensor every_second = slice(on_row, 0, 0, 100, 2);
    const std::vector<double> bare =
                                  to_vector<double>(to(matmul(to(on_a, f32), to(on_b, f32)), f64)),
                              added = to_vector<double>(to(row, f64)),
                              got = to_vector<double>(to(by_small(on_a, on_b, &every_second), f64));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double exact = bare[i] + added[i % 50 * 2];
      REQUIRE(std::abs(got[i] - exact) <= result_rounding(dtype) * 1.01 * std::abs(exact) + 1e-5);
    }
    const Tensor alone = by_small(on_a, on_b);
    const auto put_into = [&](const Tensor& memory, Tensor d) {
      on_cuda::multiply_small(on_cuda::product_of(on_a, on_b, d), on_a, on_b, nullptr, d,
                              cu::current_stream(cuda()));
      CHECK(to_vector<double>(to(contiguous(d), f64)) == to_vector<double>(to(alone, f64)));
      std::int64_t untouched = 0;
      for (const double value : to_vector<double>(to(memory, f64))) untouched += value == 77;
      CHECK(untouched == memory.numel() - d.numel());
    };
    const Tensor memory = full({60, 60}, 77, {.dtype = dtype, .device = cuda()});
    put_into(memory, slice(slice(memory, 0, 2, 35), 1, 5, 55));
    const Tensor across = full({60, 60}, 77, {.dtype = dtype, .device = cuda()});
    put_into(across, slice(slice(transpose(across, 0, 1), 0, 2, 35), 1, 5, 55));
  }
}

TEST_CASE("products of views that no library call can take", "[gpu][matmul]") {
  const Tensor x = operand({40, 60}, false, f32, 1), y = operand({60, 50}, false, f32, 2);
  const Tensor gx = to(x, cuda()), gy = to(y, cuda());
  const Problem p{{20, 30}, {30, 25}, false, false, f32, false};
  const auto thin = [](const Tensor& t) {
    return slice(slice(t, 0, 0, t.size(0), 2), 1, 0, t.size(1), 2);
  };
  CHECK(error_ratio(p, thin(x), thin(y), matmul(thin(gx), thin(gy))) <= 1);
  const Tensor row = operand({1, 60}, false, f32, 3);
  const Tensor wide = expand(row, {40, 60}), on_gpu = expand(to(row, cuda()), {40, 60});
  CHECK(error_ratio(p, wide, y, matmul(on_gpu, gy)) <= 1);
}

TEST_CASE("products with no depth are zero and empty ones are empty", "[gpu][matmul]") {
  const Tensor zero = matmul(zeros({3, 0}, {.device = cuda()}), zeros({0, 4}, {.device = cuda()}));
  CHECK(to_vector<float>(zero) == std::vector<float>(12, 0.0f));
  CHECK(matmul(zeros({0, 5}, {.device = cuda()}), zeros({5, 4}, {.device = cuda()})).numel() == 0);
  CHECK(matmul(zeros({2, 0, 5}, {.device = cuda()}), zeros({5, 4}, {.device = cuda()})).numel() ==
        0);
}

TEST_CASE("integer products wrap and take any strides", "[gpu][matmul]") {
  for (const DType dtype : {i32, i64}) {
    const Tensor a = to(arange(2 * 33 * 70, {dtype}), dtype),
                 b = to(arange(-900, 70 * 45 - 900, {dtype}), dtype);
    const Tensor x = reshape(a, {2, 33, 70}), y = transpose(reshape(b, {45, 70}), 0, 1);
    const Tensor expected = matmul(x, y);
    const Tensor got = matmul(to(x, cuda()), transpose(to(reshape(b, {45, 70}), cuda()), 0, 1));
    if (dtype == i32) CHECK(to_vector<std::int32_t>(got) == to_vector<std::int32_t>(expected));
    if (dtype == i64) CHECK(to_vector<std::int64_t>(got) == to_vector<std::int64_t>(expected));
  }
}

TEST_CASE("a product has the same bits every time", "[gpu][matmul]") {
  for (const MatmulChoice choice : {MatmulChoice::first, MatmulChoice::measured}) {
    MatmulChoiceGuard how(choice);
    for (const bool tf32 : {false, true}) {
      MatmulPrecisionGuard precision(tf32 ? Precision::tf32 : Precision::full);
      for (const Dims& shape : {Dims{257, 1000, 129}, Dims{64, 4096, 64}, Dims{1024, 512, 1024}}) {
        const Tensor a = to(operand({shape[0], shape[1]}, false, f32, 5), cuda());
        const Tensor b = to(operand({shape[1], shape[2]}, false, f32, 6), cuda());
        const std::vector<float> first = to_vector<float>(matmul(a, b));
        for (int i = 0; i < 100; ++i) REQUIRE(to_vector<float>(matmul(a, b)) == first);
      }
    }
  }
}

TEST_CASE("concurrent streams give the same bits", "[gpu][matmul]") {
  const Tensor a = to(operand({512, 2048}, false, f32, 5), cuda()),
               b = to(operand({2048, 512}, false, f32, 6), cuda());
  const std::vector<float> expected = to_vector<float>(matmul(a, b));
  synchronize(cuda());
  Stream one(cuda()), two(cuda());
  for (int i = 0; i < 20; ++i) {
    Tensor x, y;
    {
      StreamGuard guard(one);
      x = matmul(a, b);
    }
    {
      StreamGuard guard(two);
      y = matmul(a, b);
    }
    one.synchronize();
    two.synchronize();
    REQUIRE(to_vector<float>(x) == expected);
    REQUIRE(to_vector<float>(y) == expected);
  }
}

TEST_CASE("matrices are transposed exactly", "[gpu][matmul]") {
  for (const DType dtype : {f32, f64, bf16}) {
    for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                     {64, 64},
                                     {65, 63},
                                     {3, 500},
                                     {1000, 129},
                                     {256, 384},
                                     {136, 264}}) {
      // Whole numbers below 256, which are exact in every type; neighbours differ.
      const Tensor x =
          to(reshape(remainder(arange(0, 2 * rows * cols), 251), {2, cols, rows}), dtype);
      const Tensor from = to(x, cuda());
      const std::int64_t leading = (cols + 15) / 16 * 16;
      Tensor out = zeros({2, rows, leading}, {.dtype = dtype, .device = cuda()});
      on_cuda::transpose_matrices(
          {from.data(), out.data(), rows, cols, rows, leading, rows * cols, rows * leading, 2},
          dtype, cu::current_stream(cuda()));
      const Tensor back = slice(to(out, cpu), 2, 0, cols);
      CHECK(to_vector<double>(to(back, f64)) == to_vector<double>(to(transpose(x, 1, 2), f64)));
    }
  }
}

TEST_CASE(
    "a measured choice is kept on disk, is no slower than the first offer, and survives damage",
    "[gpu][matmul]") {
  CacheDirectory directory;
  MatmulPrecisionGuard precision(Precision::tf32);
  MatmulChoiceGuard how(MatmulChoice::measured);
  const Problem p{{1024, 2048}, {2048, 1024}, true, true, f32, true};
  CHECK(check(p, 1) <= 1);
  const auto kept = [&] {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path)) {
      if (entry.path().extension() == ".matmul") files.push_back(entry.path());
    }
    return files;
  };
  REQUIRE(kept().size() == 1);
  on_cuda::release_matmul();
  CHECK(check(p, 1) <= 1);
  CHECK(kept().size() == 1);
  // Cut short: it is measured again.
  std::filesystem::resize_file(kept()[0], 40);
  on_cuda::release_matmul();
  CHECK(check(p, 1) <= 1);
  CHECK(std::filesystem::file_size(kept()[0]) > 40);

  // The candidates of one problem, as measured.
  on_cuda::MatmulKey key;
  key.rows = 1024;
  key.cols = 1024;
  key.depth = 2048;
  key.leading_x = 1024;
  key.leading_y = 1024;
  key.leading_d = 1024;
  key.transpose_y = 1;
  key.tf32 = 1;
  const Tensor x = zeros({2048, 1024}, {.device = cuda()}),
               y = zeros({2048, 1024}, {.device = cuda()});
  const Tensor d = zeros({1024, 1024}, {.device = cuda()});
  on_cuda::MatmulOperands operands;
  operands.x = x.data();
  operands.y = y.data();
  operands.d = d.data();
  const auto candidates = on_cuda::measure_candidates(key, operands, cu::current_stream(cuda()));
  REQUIRE(!candidates.empty());
  CHECK(candidates[0].microseconds > 0);
  for (const auto& c : candidates) {
    if (c.microseconds > 0) CHECK(c.microseconds >= candidates[0].microseconds);
  }
  std::printf(
      "matmul: %zu candidates for tf32 NT 1024x1024x2048, best %.1f us (operands transposed: %d)\n",
      candidates.size(), candidates[0].microseconds, candidates[0].pretransposed);
}

TEST_CASE("the host's part of a small product allocates no memory of the device", "[gpu][matmul]") {
  const Tensor a = rand({64, 64}, {.device = cuda()}), b = rand({64, 64}, {.device = cuda()});
  for (int i = 0; i < 10; ++i) matmul(a, b);
  synchronize(cuda());
  const auto before = memory_stats(cuda());
  for (int i = 0; i < 1000; ++i) matmul(a, b);
  synchronize(cuda());
  CHECK(memory_stats(cuda()).system_allocations == before.system_allocations);
}
