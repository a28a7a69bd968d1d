// What the machine does with nothing of brrr in between: the loops and calls that results are held
// against.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include <brrr/measure/timing.h>
#include <brrr/tensor/dtype.h>
#include <brrr/tensor/tensor.h>

namespace brrr::measure {

// --- CPU. Each batch owns its buffers, which hold random numbers.

// c[i] = a[i] + b[i]
Batch plain_add(std::int64_t elements, int threads);
// The sum of all elements, many partial sums side by side.
Batch plain_sum(std::int64_t elements, int threads);
// malloc, add `elements` floats, free: an op with no framework around it.
Batch plain_small_add(std::int64_t elements);
Batch plain_malloc(std::size_t bytes);
// sgemm on square matrices, by the BLAS that is linked; OpenBLAS uses that many threads.
Batch bare_gemm(std::int64_t size, int threads);

// --- CUDA. Without the toolkit's headers these throw.

// cuMemcpyDtoDAsync of `bytes` on the current stream: reads and writes that many.
Batch device_copy(Device device, std::int64_t bytes);

// The kernels that some work launches, same arguments and same order, launched on the current
// stream with nothing in between.
struct BareLaunches {
  std::function<void()> launch;  // keeps the memory that they work in
  int kernels = 0;
};
// Runs `work` once for real, and captures what it launches the next time. What it reads has to live
// as long as the launches. Nothing when it asks for anything but kernels, or for none.
std::optional<BareLaunches> bare_launches(Device device, const std::function<void()>& work);

struct MatmulProblem {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // a is stored [k, m], b is stored [n, k]
  DType dtype = DType::f32;
  bool tf32 = false;
};

// cublasLtMatmul with descriptors made beforehand and the fastest of all algorithms that the
// library offers; goes through sets of operands in turn, so that none is found in the cache.
struct BareMatmul {
  Batch batch;
  Batch synchronized;          // by the host's clock
  int algorithms = 0;          // tried
  double first_over_best = 1;  // how much slower the first offer is
};
BareMatmul bare_matmul(Device device, const MatmulProblem& problem, std::span<const Tensor> a,
                       std::span<const Tensor> b);

}  // namespace brrr::measure
