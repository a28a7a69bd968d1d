// Limits that benchmarks compare brrr with: loops and library calls that bypass it.
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

// --- CPU. Each batch owns its buffers, filled with random numbers.

// c[i] = a[i] + b[i], `rounds` times in a call.
Batch plain_add(std::int64_t elements, int threads, int rounds = 1);
// The data caches that a core uses, in bytes; where the system does not tell, usual sizes.
struct CacheSizes {
  std::int64_t l1 = 0, l2 = 0, l3 = 0;
};
CacheSizes cache_sizes();
// The sum of all elements, in independent partial sums.
Batch plain_sum(std::int64_t elements, int threads);
// x = x * a + b in independent chains that stay in registers, multiplied and added separately,
// as brrr's kernels on the CPU do it.
struct MultiplyAdds {
  Batch batch;
  double flops = 0;
};
MultiplyAdds plain_multiply_adds(DType dtype, int threads);  // f32, f64
// malloc, add `elements` floats, free: an op without a framework.
Batch plain_small_add(std::int64_t elements);
Batch plain_malloc(std::size_t bytes);
// sgemm on square matrices, by the linked BLAS; `threads` applies to OpenBLAS.
Batch bare_gemm(std::int64_t size, int threads);

// --- CUDA. In a build without the toolkit's headers these throw.

// cuMemcpyDtoDAsync of `bytes` on the current stream: reads `bytes` and writes `bytes`.
Batch device_copy(Device device, std::int64_t bytes);

// plain_multiply_adds on the device: fused multiply-adds in a kernel that fills it.
MultiplyAdds device_multiply_adds(Device device, DType dtype);
std::string multiply_add_source(DType dtype);

// The kernels of some work, which `launch` launches again on the current stream, with the same
// arguments and in the same order, without other host work.
struct BareLaunches {
  std::function<void()> launch;  // owns the memory that the kernels allocate
  int kernels = 0;
};
// Runs `work` once, and captures a second run. The tensors that it reads must outlive the result.
// Empty if the captured graph has nodes other than kernels, or no nodes.
std::optional<BareLaunches> bare_launches(Device device, const std::function<void()>& work);

struct MatmulProblem {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // a is stored [k, m], b is stored [n, k]
  DType dtype = DType::f32;
  bool tf32 = false;
};

// cublasLtMatmul with prepared descriptors and the fastest algorithm that the heuristic returns.
// Calls cycle through the sets of operands, so that none is cached.
struct BareMatmul {
  Batch batch;
  Batch synchronized;          // by the host's clock
  int algorithms = 0;          // measured
  double first_over_best = 1;  // time of the heuristic's first choice, relative to the fastest
};
BareMatmul bare_matmul(Device device, const MatmulProblem& problem, std::span<const Tensor> a,
                       std::span<const Tensor> b);

}  // namespace brrr::measure
