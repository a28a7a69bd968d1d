// The GPU's limits: device copies and direct cublasLtMatmul calls.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "brrr/measure/limits.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_api.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_stream.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"

namespace brrr::sources {
extern const char multiply_add_cu[];
}

namespace brrr::measure {
namespace {

CUstream stream_of(Device device) { return cu::current_stream(device).handle; }

CUdeviceptr address(const Tensor& x) { return reinterpret_cast<CUdeviceptr>(x.data()); }

// --- cuBLASLt

// A matrix product for cuBLASLt, which is column-major: out^T = b^T a^T of the row-major problem.
struct LtCall {
  static constexpr std::size_t kWorkspace = std::size_t{64} << 20;
  static constexpr int kMostAlgorithms = 64;

  // Delegates, so that the destructor releases the handles if prepare() throws.
  LtCall(Device on, const MatmulProblem& problem, std::span<const Tensor> as,
         std::span<const Tensor> bs)
      : LtCall(on, as, bs) {
    prepare(problem);
  }
  ~LtCall();
  LtCall(const LtCall&) = delete;
  LtCall& operator=(const LtCall&) = delete;

  void run(const cublasLtMatmulAlgo_t& algorithm) {
    const std::size_t i = next++ % a.size();
    BRRR_CUDA(cublasLtMatmul, handle, description, one(), b[i].data(), b_layout, a[i].data(),
              a_layout, zero(), out[i].data(), out_layout, out[i].data(), out_layout, &algorithm,
              workspace.data(), kWorkspace, stream_of(device));
  }

  Device device;
  bool f64 = false;
  std::vector<Tensor> a, b, out;
  Tensor workspace;
  std::size_t next = 0;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a_layout = nullptr, b_layout = nullptr, out_layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  cublasLtMatmulAlgo_t best = {};

 private:
  LtCall(Device on, std::span<const Tensor> as, std::span<const Tensor> bs)
      : device(on), a(as.begin(), as.end()), b(bs.begin(), bs.end()) {}
  void prepare(const MatmulProblem& problem);

  const void* one() const { return f64 ? static_cast<const void*>(&kOne64) : &kOne; }
  const void* zero() const { return f64 ? static_cast<const void*>(&kZero64) : &kZero; }
  static constexpr float kOne = 1, kZero = 0;
  static constexpr double kOne64 = 1, kZero64 = 0;
};

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::f64: return CUDA_R_64F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: fail("[bare_matmul] expected a floating dtype, got " + std::string(name_of(dtype)));
  }
}

void LtCall::prepare(const MatmulProblem& problem) {
  f64 = problem.dtype == DType::f64;
  const auto [m, n, k, transpose_a, transpose_b, dtype, tf32] = problem;
  for (std::size_t i = 0; i < a.size(); ++i) {
    out.push_back(empty({m, n}, {.dtype = dtype, .device = device}));
  }
  workspace =
      empty({static_cast<std::int64_t>(kWorkspace / 4)}, {.dtype = DType::f32, .device = device});

  const cudaDataType_t type = type_of(dtype);
  const cublasComputeType_t compute = f64    ? CUBLAS_COMPUTE_64F
                                      : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                             : CUBLAS_COMPUTE_32F;
  BRRR_CUDA(cublasLtCreate, &handle);
  BRRR_CUDA(cublasLtMatmulDescCreate, &description, compute, f64 ? CUDA_R_64F : CUDA_R_32F);
  const cublasOperation_t first = transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  BRRR_CUDA(cublasLtMatmulDescSetAttribute, description, CUBLASLT_MATMUL_DESC_TRANSA, &first,
            sizeof first);
  BRRR_CUDA(cublasLtMatmulDescSetAttribute, description, CUBLASLT_MATMUL_DESC_TRANSB, &second,
            sizeof second);
  const auto layout = [&](cublasLtMatrixLayout_t& made, std::int64_t rows, std::int64_t columns) {
    BRRR_CUDA(cublasLtMatrixLayoutCreate, &made, type, static_cast<std::uint64_t>(rows),
              static_cast<std::uint64_t>(columns), rows);
  };
  transpose_b ? layout(b_layout, k, n) : layout(b_layout, n, k);
  transpose_a ? layout(a_layout, m, k) : layout(a_layout, k, m);
  layout(out_layout, n, m);

  BRRR_CUDA(cublasLtMatmulPreferenceCreate, &preference);
  const std::size_t most = kWorkspace;
  BRRR_CUDA(cublasLtMatmulPreferenceSetAttribute, preference,
            CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
  std::vector<cublasLtMatmulHeuristicResult_t> offers(kMostAlgorithms);
  int offered = 0;
  BRRR_CUDA(cublasLtMatmulAlgoGetHeuristic, handle, description, b_layout, a_layout, out_layout,
            out_layout, preference, kMostAlgorithms, offers.data(), &offered);
  for (int i = 0; i < offered; ++i) {
    if (offers[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS) {
      algorithms.push_back(offers[static_cast<std::size_t>(i)].algo);
    }
  }
  if (algorithms.empty()) fail("[bare_matmul] expected cuBLASLt to offer an algorithm, got none");
}

LtCall::~LtCall() {
  if (preference) BRRR_CUDA_TRY(cublasLtMatmulPreferenceDestroy, preference);
  if (out_layout) BRRR_CUDA_TRY(cublasLtMatrixLayoutDestroy, out_layout);
  if (a_layout) BRRR_CUDA_TRY(cublasLtMatrixLayoutDestroy, a_layout);
  if (b_layout) BRRR_CUDA_TRY(cublasLtMatrixLayoutDestroy, b_layout);
  if (description) BRRR_CUDA_TRY(cublasLtMatmulDescDestroy, description);
  if (handle) BRRR_CUDA_TRY(cublasLtDestroy, handle);
}

}  // namespace

Batch device_copy(Device device, std::int64_t bytes) {
  const Tensor from = rand({bytes / 4}, {.device = device});
  const Tensor to = empty({bytes / 4}, {.device = device});
  return device_batch(device, [device, from, to] {
    BRRR_CUDA(cuMemcpyDtoDAsync, address(to), address(from), from.bytes(), stream_of(device));
  });
}

std::string multiply_add_source(DType dtype) {
  return std::string(dtype == DType::f64 ? "typedef double Real;\n" : "typedef float Real;\n") +
         sources::multiply_add_cu;
}

MultiplyAdds device_multiply_adds(Device device, DType dtype) {
  constexpr std::int64_t kRounds = 4096;
  constexpr unsigned kThreads = 256, kBlocks = 8;  // of a block, on a multiprocessor
  constexpr double kChains = 8;
  const CUfunction kernel =
      jit::load_kernel(device, "multiply_add", multiply_add_source(dtype), {.fast = true});
  const unsigned blocks = kBlocks * static_cast<unsigned>(jit::multiprocessors_of(device));
  const Tensor result = empty({1}, {.dtype = dtype, .device = device});
  return {device_batch(device,
                       [device, kernel, blocks, result] {
                         void* data = result.data();
                         std::int64_t rounds = kRounds;
                         void* arguments[] = {&data, &rounds};
                         BRRR_CUDA(cuLaunchKernel, kernel, blocks, 1, 1, kThreads, 1, 1, 0,
                                   stream_of(device), arguments, nullptr);
                       }),
          2 * kChains * static_cast<double>(kRounds) * kThreads * blocks};
}

BareMatmul bare_matmul(Device device, const MatmulProblem& problem, std::span<const Tensor> a,
                       std::span<const Tensor> b) {
  auto call = std::make_shared<LtCall>(device, problem, a, b);
  // Times every algorithm briefly, then the best few again, interleaved: their times are close.
  struct Candidate {
    double seconds;
    std::size_t index;
  };
  std::vector<Candidate> candidates;
  const auto least_seconds = [&](std::size_t index, int samples) {
    const Batch batch = device_batch(device, [&] { call->run(call->algorithms[index]); });
    batch(1);
    double least = batch(2) / 2;
    for (int i = 1; i < samples; ++i) least = std::min(least, batch(2) / 2);
    return least;
  };
  for (std::size_t i = 0; i < call->algorithms.size(); ++i) {
    candidates.push_back({least_seconds(i, 3), i});
  }
  const double first = candidates.front().seconds;
  std::ranges::sort(candidates, {}, &Candidate::seconds);
  candidates.resize(std::min<std::size_t>(candidates.size(), 6));
  for (Candidate& each : candidates) each.seconds = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 9; ++round) {
    for (Candidate& each : candidates) {
      each.seconds = std::min(each.seconds, least_seconds(each.index, 2));
    }
  }
  std::ranges::sort(candidates, {}, &Candidate::seconds);
  call->best = call->algorithms[candidates.front().index];

  const auto run = [call] { call->run(call->best); };
  return {.batch = device_batch(device, run),
          .synchronized = synchronized_batch(device, run),
          .algorithms = static_cast<int>(call->algorithms.size()),
          .first_over_best = first / candidates.front().seconds};
}

}  // namespace brrr::measure
