// Matrix products, relative to direct calls of the BLAS with its fastest algorithm.
#include <fmt/format.h>

#include "brrr/measure/bench.h"
#include "brrr/measure/limits.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::measure {
namespace {

double flops(const MatmulProblem& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

void matmul_on_cpu(const BenchOptions& options, Results& results) {
  for (const std::int64_t size : {64, 256, 1024}) {
    if (options.quick && size > 64) continue;
    const std::string name = fmt::format("matmul/{0}x{0}x{0} f32", size);
    options.progress(name);
    const Tensor a = rand({size, size}), b = rand({size, size});
    const auto [ours, bare] = time_both(host_batch([&] { matmul(a, b); }),
                                        bare_gemm(size, num_threads()), options.sampling());
    const double work = flops({.m = size, .n = size, .k = size});
    results.push_back(
        rate_result(name, cpu, "GFLOP/s", work, ours, work, bare, "bare sgemm, as many threads"));
  }
}

Result matmul_case(const BenchOptions& options, const MatmulProblem& p) {
  const Device device = options.device;
  const char* precision = p.tf32 ? "tf32" : name_of(p.dtype).data();
  std::string name = fmt::format("matmul/{}x{}x{} {} {}{}", p.m, p.n, p.k, precision,
                                 p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N');
  options.progress(name);
  // Enough sets of operands to exceed the cache, at least two.
  const double bytes =
      static_cast<double>(p.m * p.k + p.k * p.n) * static_cast<double>(size_of(p.dtype));
  const int sets = std::clamp(static_cast<int>(256e6 / bytes), 2, 16);
  const Options here{.dtype = p.dtype, .device = device};
  std::vector<Tensor> stored_a, stored_b, a, b;
  for (int i = 0; i < sets; ++i) {
    stored_a.push_back(sub(rand(p.transpose_a ? Dims{p.k, p.m} : Dims{p.m, p.k}, here), 0.5));
    stored_b.push_back(sub(rand(p.transpose_b ? Dims{p.n, p.k} : Dims{p.k, p.n}, here), 0.5));
    a.push_back(p.transpose_a ? transpose(stored_a.back(), 0, 1) : stored_a.back());
    b.push_back(p.transpose_b ? transpose(stored_b.back(), 0, 1) : stored_b.back());
  }
  const MatmulPrecisionGuard precision_guard(p.tf32 ? Precision::tf32 : Precision::full);
  const MatmulChoiceGuard choice_guard(MatmulChoice::measured);
  const BareMatmul bare = bare_matmul(device, p, stored_a, stored_b);
  std::size_t next = 0;
  const auto call = [&] {
    const std::size_t i = next++ % a.size();
    matmul(a[i], b[i]);
  };
  Sampling sampling = options.sampling();
  if (!options.quick) sampling.warm_seconds = 1;  // as bench/peers/torch_eager.py
  const auto [ours, limit] = time_both(device_batch(device, call), bare.batch, sampling);
  return rate_result(std::move(name), device, "GFLOP/s", flops(p), ours, flops(p), limit,
                     fmt::format("best of {} cublasLtMatmul, {:.2f} times the first",
                                 bare.algorithms, bare.first_over_best));
}

void matmul_on_cuda(const BenchOptions& options, Results& results) {
  const std::int64_t scale = options.quick ? 16 : 1;
  for (const bool tf32 : {true, false}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        results.push_back(matmul_case(options, {.m = 4096 / scale,
                                                .n = 8192 / scale,
                                                .k = 4096 / scale,
                                                .transpose_a = transpose_a,
                                                .transpose_b = transpose_b,
                                                .dtype = tf32 ? f32 : bf16,
                                                .tf32 = tf32}));
      }
    }
  }
  for (const DType dtype : {f32, bf16}) {
    results.push_back(
        matmul_case(options, {.m = 256, .n = 128, .k = 256, .dtype = dtype, .tf32 = dtype == f32}));
    results.push_back(matmul_case(
        options, {.m = 1024, .n = 1024, .k = 1024, .dtype = dtype, .tf32 = dtype == f32}));
  }
  results.push_back(
      matmul_case(options, {.m = 2048 / scale, .n = 2048 / scale, .k = 2048 / scale}));
}

}  // namespace

void bench_matmul(const BenchOptions& options, Results& results) {
  manual_seed(options.seed);
  options.device.is_cpu() ? matmul_on_cpu(options, results) : matmul_on_cuda(options, results);
}

}  // namespace brrr::measure
