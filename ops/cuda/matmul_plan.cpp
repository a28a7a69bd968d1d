#include "brrr/ops/cuda/matmul_plan.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "brrr/ops/cuda/matmul_tuning.h"
#include "brrr/ops/cuda/transpose.h"
#include "brrr/ops/cuda/workspace.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/cuda_relaxed_capture.h"
#include "brrr/tensor/error.h"

namespace brrr::on_cuda {
namespace {

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case f64: return CUDA_R_64F;
    case f16: return CUDA_R_16F;
    case bf16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

cublasLtMatrixLayout_t make_layout(const MatmulKey& key, std::int64_t rows, std::int64_t cols,
                                   std::int64_t leading, std::int64_t batch_stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  BRRR_CUDA(cublasLtMatrixLayoutCreate, &layout, data_type(key.dtype),
            static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cols), leading);
  if (key.batches > 1) {
    try {
      BRRR_CUDA(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                &key.batches, sizeof key.batches);
      BRRR_CUDA(cublasLtMatrixLayoutSetAttribute, layout,
                CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride, sizeof batch_stride);
    } catch (...) {
      BRRR_CUDA_TRY(cublasLtMatrixLayoutDestroy, layout);
      throw;
    }
  }
  return layout;
}

void destroy(MatmulDescriptors& of) {
  for (cublasLtMatrixLayout_t* layout : {&of.x, &of.y, &of.c, &of.d}) {
    if (*layout) BRRR_CUDA_TRY(cublasLtMatrixLayoutDestroy, std::exchange(*layout, nullptr));
  }
  if (of.operation) BRRR_CUDA_TRY(cublasLtMatmulDescDestroy, std::exchange(of.operation, nullptr));
}

}  // namespace

MatmulDescriptors::MatmulDescriptors(const MatmulKey& key) {
  try {
    const bool wide = key.dtype == f64;
    const auto compute = wide       ? CUBLAS_COMPUTE_64F
                         : key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                    : CUBLAS_COMPUTE_32F;
    BRRR_CUDA(cublasLtMatmulDescCreate, &operation, compute, wide ? CUDA_R_64F : CUDA_R_32F);
    const cublasOperation_t op_x = key.transpose_x ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_y = key.transpose_y ? CUBLAS_OP_T : CUBLAS_OP_N;
    BRRR_CUDA(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_TRANSA, &op_x,
              sizeof op_x);
    BRRR_CUDA(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_TRANSB, &op_y,
              sizeof op_y);
    if (key.epilogue == Epilogue::bias) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      BRRR_CUDA(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                sizeof epilogue);
    }
    x = key.transpose_x ? make_layout(key, key.depth, key.rows, key.leading_x, key.batch_x)
                        : make_layout(key, key.rows, key.depth, key.leading_x, key.batch_x);
    y = key.transpose_y ? make_layout(key, key.cols, key.depth, key.leading_y, key.batch_y)
                        : make_layout(key, key.depth, key.cols, key.leading_y, key.batch_y);
    d = make_layout(key, key.rows, key.cols, key.leading_d, key.batch_d);
    c = key.adds_c ? make_layout(key, key.rows, key.cols, key.leading_c, key.batch_c)
                   : make_layout(key, key.rows, key.cols, key.leading_d, key.batch_d);
  } catch (...) {
    destroy(*this);
    throw;
  }
}

MatmulDescriptors::~MatmulDescriptors() { destroy(*this); }

namespace {

// A pretransposed operand has the summed dimension adjacent and its columns aligned to 16 elements.
std::int64_t pretransposed_leading(const MatmulKey& key) { return (key.depth + 15) / 16 * 16; }

}  // namespace

MatmulKey pretransposed_key(const MatmulKey& key, std::uint8_t pretransposed) {
  MatmulKey inner = key;
  if (pretransposed & pretranspose_x) {
    inner.transpose_x = 1;
    inner.leading_x = pretransposed_leading(key);
    inner.batch_x = key.batch_x == 0 ? 0 : inner.leading_x * key.rows;
    inner.align_x = 4;
  }
  if (pretransposed & pretranspose_y) {
    inner.transpose_y = 0;
    inner.leading_y = pretransposed_leading(key);
    inner.batch_y = key.batch_y == 0 ? 0 : inner.leading_y * key.cols;
    inner.align_y = 4;
  }
  return inner;
}

std::size_t pretransposed_bytes(const MatmulKey& key, std::uint8_t which) {
  const bool is_x = which == pretranspose_x;
  const std::int64_t matrices = (is_x ? key.batch_x : key.batch_y) == 0 ? 1 : key.batches;
  return static_cast<std::size_t>(matrices * pretransposed_leading(key) *
                                  (is_x ? key.rows : key.cols)) *
         size_of(key.dtype);
}

MatmulPlan::MatmulPlan(const MatmulKey& asked, std::uint8_t operands_to_transpose,
                       cu::DeviceState& device)
    : key(asked),
      pretransposed(operands_to_transpose),
      inner(pretransposed_key(asked, operands_to_transpose)),
      descriptors(inner),
      on(&device),
      library(matmul_library(device)) {}

namespace {

// One handle a device.
struct Libraries {
  struct Opened {
    std::atomic<cu::DeviceState*> on{nullptr};  // set once `handle` may be read
    cublasLtHandle_t handle = nullptr;
  };
  std::mutex mutex;
  Opened opened[kMaxDevices];
};
Libraries& libraries() {
  static Libraries* instance = new Libraries;  // used until the very end of the process
  return *instance;
}

}  // namespace

cublasLtHandle_t matmul_library(cu::DeviceState& device) {
  Libraries::Opened& mine = libraries().opened[device.index];
  if (mine.on.load(std::memory_order_acquire) == &device) return mine.handle;
  std::lock_guard lock(libraries().mutex);
  if (mine.on.load() == &device) return mine.handle;
  BRRR_CUDA(cublasLtCreate, &mine.handle);
  mine.on.store(&device, std::memory_order_release);
  return mine.handle;
}

namespace {

class Preference {
 public:
  Preference() { BRRR_CUDA(cublasLtMatmulPreferenceCreate, &preference_); }
  ~Preference() { BRRR_CUDA_TRY(cublasLtMatmulPreferenceDestroy, preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    BRRR_CUDA(cublasLtMatmulPreferenceSetAttribute, preference_, attribute, &value, sizeof value);
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

}  // namespace

std::vector<Algorithm> offered_algorithms(cublasLtHandle_t library, const MatmulKey& key,
                                          const MatmulDescriptors& descriptors, int most,
                                          bool widely) {
  Preference preference;
  // A sum split over blocks may not pass through 16 bits: partial sums stay in the type of the
  // accumulator.
  const std::uint32_t schemes = is_half(key.dtype) ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                   : CUBLASLT_REDUCTION_SCHEME_INPLACE |
                                                         CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{1} << key.align_x);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t{1} << key.align_y);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                 std::uint32_t{1} << (key.adds_c ? key.align_c : key.align_d));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{1} << key.align_d);

  const std::uint64_t limit = kMatmulWorkspace;
  std::vector<std::uint64_t> limits = {limit};
  if (widely) {
    for (std::uint64_t other : {std::uint64_t{0}, std::uint64_t{4} << 20}) {
      if (other < limit) limits.push_back(other);
    }
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  std::vector<Algorithm> algorithms;
  for (std::uint64_t workspace : limits) {
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    int count = 0;
    const cublasStatus_t status =
        BRRR_CUDA_TRY(cublasLtMatmulAlgoGetHeuristic, library, descriptors.operation, descriptors.x,
                      descriptors.y, descriptors.c, descriptors.d, preference.get(), most,
                      results.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) continue;
    cu::check<cu::Fn::k_cublasLtMatmulAlgoGetHeuristic>(status);
    for (int i = 0; i < count; ++i) {
      const auto& result = results[static_cast<std::size_t>(i)];
      if (result.state != CUBLAS_STATUS_SUCCESS) continue;
      bool known = false;
      for (const Algorithm& other : algorithms) {
        known |= std::memcmp(&other.algo, &result.algo, sizeof other.algo) == 0;
      }
      if (!known) algorithms.push_back({result.algo, result.workspaceSize});
    }
  }
  return algorithms;
}

namespace {

struct KeyHash {
  std::size_t operator()(const MatmulKey& key) const { return hash_of(key); }
};

struct Plans {
  std::shared_mutex mutex;
  std::unordered_map<MatmulKey, std::unique_ptr<MatmulPlan>, KeyHash> by_key;
  std::vector<std::unique_ptr<MatmulPlan>>
      past;  // of a device state that is gone; threads may look at them yet
};
Plans& plans() {
  static Plans* instance = new Plans;
  return *instance;
}

// The plans that this thread used last, by a few bits of the hash. Plans live as long as their
// generation.
constexpr std::size_t kFront = 32;
struct Seen {
  std::uint64_t hash;
  const MatmulPlan* plan;
  std::uint32_t generation;
};
std::atomic<std::uint32_t> generation{0};
constinit thread_local Seen front[kFront] = {};

std::unique_ptr<MatmulPlan> first_offered(const MatmulKey& key, cu::DeviceState& device) {
  auto plan = std::make_unique<MatmulPlan>(key, pretranspose_none, device);
  const auto offered = offered_algorithms(plan->library, plan->inner, plan->descriptors, 1, false);
  if (offered.empty()) {
    fail(
        fmt::format("[matmul] cuBLASLt offers no algorithm for {}[{}, {}] x [{}, {}], {} at a "
                    "time, with {} bytes of workspace",
                    name_of(key.dtype), key.cols, key.depth, key.depth, key.rows, key.batches,
                    kMatmulWorkspace));
  }
  plan->algorithm = offered[0];
  return plan;
}

[[gnu::noinline]] const MatmulPlan& make_plan(const MatmulKey& key, const MatmulOperands& operands,
                                              cu::CudaStream& stream) {
  Plans& all = plans();
  {
    std::shared_lock lock(all.mutex);
    if (const auto found = all.by_key.find(key);
        found != all.by_key.end() && found->second->on == stream.on) {
      return *found->second;
    }
  }
  // The library allocates and loads kernels at its first calls, which may fall into a capture.
  std::optional<cu::RelaxedCapture> relaxed;
  if (stream.on->captures.load() != 0) relaxed.emplace();
  std::unique_ptr<MatmulPlan> plan;
  if (key.measured) plan = tuned_plan(key, operands, stream);
  if (!plan) plan = first_offered(key, *stream.on);
  std::unique_lock lock(all.mutex);
  std::unique_ptr<MatmulPlan>& held = all.by_key[key];
  // Another thread may have been faster: its plan holds.
  if (held && held->on == stream.on) return *held;
  if (held) all.past.push_back(std::move(held));
  held = std::move(plan);
  return *held;
}

}  // namespace

const MatmulPlan& plan_for(const MatmulKey& key, const MatmulOperands& operands,
                           cu::CudaStream& stream) {
  const std::uint64_t hash = hash_of(key);
  Seen& seen = front[hash % kFront];
  const std::uint32_t now = generation.load(std::memory_order_relaxed);
  if (seen.hash == hash && seen.plan && seen.generation == now && seen.plan->on == stream.on &&
      seen.plan->key == key) [[likely]]
    return *seen.plan;
  const MatmulPlan& plan = make_plan(key, operands, stream);
  seen = {hash, &plan, now};
  return plan;
}

cublasStatus_t run_with(const MatmulPlan& plan, const MatmulOperands& operands,
                        void* const pretransposed[2], void* workspace, cu::CudaStream& stream) {
  const MatmulKey& key = plan.key;
  const void *x = operands.x, *y = operands.y;
  if (plan.pretransposed & pretranspose_x) {
    transpose_matrices({x, pretransposed[0], key.transpose_x ? key.depth : key.rows,
                        key.transpose_x ? key.rows : key.depth, key.leading_x, plan.inner.leading_x,
                        key.batch_x, plan.inner.batch_x, key.batch_x == 0 ? 1 : key.batches},
                       key.dtype, stream);
    x = pretransposed[0];
  }
  if (plan.pretransposed & pretranspose_y) {
    transpose_matrices({y, pretransposed[1], key.transpose_y ? key.cols : key.depth,
                        key.transpose_y ? key.depth : key.cols, key.leading_y, plan.inner.leading_y,
                        key.batch_y, plan.inner.batch_y, key.batch_y == 0 ? 1 : key.batches},
                       key.dtype, stream);
    y = pretransposed[1];
  }
  const MatmulDescriptors& of = plan.descriptors;
  const float narrow[2] = {static_cast<float>(operands.alpha), static_cast<float>(operands.beta)};
  const double wide[2] = {operands.alpha, operands.beta};
  const bool is_wide = key.dtype == f64;
  const void* alpha = is_wide ? static_cast<const void*>(&wide[0]) : &narrow[0];
  const void* beta = is_wide ? static_cast<const void*>(&wide[1]) : &narrow[1];
  // No copy of the descriptor: a library newer than the headers may have a larger one.
  std::unique_lock<std::mutex> naming_bias;
  if (key.epilogue == Epilogue::bias) {
    naming_bias = std::unique_lock(plan.bias);
    BRRR_CUDA(cublasLtMatmulDescSetAttribute, of.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
              &operands.bias, sizeof operands.bias);
  }
  return BRRR_CUDA_TRY(cublasLtMatmul, plan.library, of.operation, alpha, x, of.x, y, of.y, beta,
                       key.adds_c ? operands.c : operands.d, of.c, operands.d, of.d,
                       &plan.algorithm.algo, workspace, plan.algorithm.workspace, stream.handle);
}

void run(const MatmulPlan& plan, const MatmulOperands& operands, cu::CudaStream& stream) {
  const auto workspace = [&] {
    const std::size_t bytes = plan.algorithm.workspace;
    return bytes == 0 ? nullptr : workspace_of(stream, bytes).data;
  };
  if (plan.pretransposed == pretranspose_none) [[likely]] {
    cu::check<cu::Fn::k_cublasLtMatmul>(run_with(plan, operands, nullptr, workspace(), stream));
    return;
  }
  const Device device(DeviceType::cuda, plan.key.device);
  Tensor copies[2];
  void* pretransposed[2] = {};
  for (int i = 0; i < 2; ++i) {
    const std::uint8_t which = i == 0 ? pretranspose_x : pretranspose_y;
    if (!(plan.pretransposed & which)) continue;
    const std::int64_t count =
        static_cast<std::int64_t>(pretransposed_bytes(plan.key, which) / size_of(plan.key.dtype));
    copies[i] = make_tensor(plan.key.dtype, {&count, 1}, device);
    pretransposed[i] = copies[i].data();
  }
  cu::check<cu::Fn::k_cublasLtMatmul>(run_with(plan, operands, pretransposed, workspace(), stream));
}

void release_matmul() {
  Plans& all = plans();
  std::unique_lock lock(all.mutex);
  generation.fetch_add(1);
  all.by_key.clear();
  all.past.clear();
  release_workspaces();
  release_tuning();
  std::lock_guard closing(libraries().mutex);
  for (Libraries::Opened& mine : libraries().opened) {
    if (!mine.on.exchange(nullptr)) continue;
    BRRR_CUDA_TRY(cublasLtDestroy, std::exchange(mine.handle, nullptr));
  }
}

}  // namespace brrr::on_cuda
