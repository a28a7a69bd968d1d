#include "brrr/ops/cuda/matmul_plan.h"

#include <algorithm>
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
#include "brrr/tensor/fail.h"
#include "brrr/tensor/tensor_impl.h"

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

LibraryObject<cublasLtMatrixLayoutOpaque_t> make_layout(const MatmulKey& key, std::int64_t rows,
                                                        std::int64_t cols, std::int64_t leading,
                                                        std::int64_t batch_stride,
                                                        bool transposed = false) {
  if (transposed) std::swap(rows, cols);
  cublasLtMatrixLayout_t layout = nullptr;
  BRRR_CUDA(cublasLtMatrixLayoutCreate, &layout, data_type(key.dtype),
            static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cols), leading);
  LibraryObject<cublasLtMatrixLayoutOpaque_t> owned(layout);
  if (key.batches > 1) {
    BRRR_CUDA(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
              &key.batches, sizeof key.batches);
    BRRR_CUDA(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
              &batch_stride, sizeof batch_stride);
  }
  return owned;
}

// The leading dimension of a pretransposed operand: contiguous along the summed dimension, padded
// to 16 elements.
std::int64_t pretransposed_leading(const MatmulKey& key) { return (key.depth + 15) / 16 * 16; }

}  // namespace

void DestroyLibraryObject::operator()(cublasLtMatmulDescOpaque_t* object) const {
  BRRR_CUDA_TRY(cublasLtMatmulDescDestroy, object);
}
void DestroyLibraryObject::operator()(cublasLtMatrixLayoutOpaque_t* object) const {
  BRRR_CUDA_TRY(cublasLtMatrixLayoutDestroy, object);
}
void DestroyLibraryObject::operator()(cublasLtMatmulPreferenceOpaque_t* object) const {
  BRRR_CUDA_TRY(cublasLtMatmulPreferenceDestroy, object);
}

MatmulDescriptors::MatmulDescriptors(const MatmulKey& key) {
  const bool wide = key.dtype == f64;
  const auto compute = wide       ? CUBLAS_COMPUTE_64F
                       : key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                  : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t descriptor = nullptr;
  BRRR_CUDA(cublasLtMatmulDescCreate, &descriptor, compute, wide ? CUDA_R_64F : CUDA_R_32F);
  operation.reset(descriptor);
  const auto set = [descriptor](cublasLtMatmulDescAttributes_t attribute, auto value) {
    BRRR_CUDA(cublasLtMatmulDescSetAttribute, descriptor, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_x ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_y ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.epilogue == Epilogue::bias)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, cublasLtEpilogue_t{CUBLASLT_EPILOGUE_BIAS});
  x = make_layout(key, key.rows, key.depth, key.leading_x, key.batch_x, key.transpose_x);
  y = make_layout(key, key.depth, key.cols, key.leading_y, key.batch_y, key.transpose_y);
  d = make_layout(key, key.rows, key.cols, key.leading_d, key.batch_d);
}

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

std::vector<Algorithm> offered_algorithms(cublasLtHandle_t library, const MatmulKey& key,
                                          const MatmulDescriptors& descriptors, int most,
                                          bool widely) {
  cublasLtMatmulPreference_t preference = nullptr;
  BRRR_CUDA(cublasLtMatmulPreferenceCreate, &preference);
  const LibraryObject<cublasLtMatmulPreferenceOpaque_t> owned(preference);
  const auto set = [preference](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    BRRR_CUDA(cublasLtMatmulPreferenceSetAttribute, preference, attribute, &value, sizeof value);
  };
  // Partial sums of split products must not be rounded to 16 bits: they stay in the accumulator's
  // type.
  const std::uint32_t schemes = is_half(key.dtype) ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                   : CUBLASLT_REDUCTION_SCHEME_INPLACE |
                                                         CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{1} << key.align_x);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t{1} << key.align_y);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{1} << key.align_d);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{1} << key.align_d);

  std::vector<std::uint64_t> limits = {kMatmulWorkspace};
  if (widely) limits.insert(limits.end(), {0, std::uint64_t{4} << 20});
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  std::vector<Algorithm> algorithms;
  for (std::uint64_t workspace : limits) {
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    int count = 0;
    const cublasStatus_t status =
        BRRR_CUDA_TRY(cublasLtMatmulAlgoGetHeuristic, library, descriptors.operation.get(),
                      descriptors.x.get(), descriptors.y.get(), descriptors.d.get(),
                      descriptors.d.get(), preference, most, results.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) continue;
    cu::check<cu::Fn::k_cublasLtMatmulAlgoGetHeuristic>(status);
    for (int i = 0; i < count; ++i) {
      const auto& result = results[static_cast<std::size_t>(i)];
      if (result.state != CUBLAS_STATUS_SUCCESS) continue;
      if (std::ranges::none_of(algorithms, [&](const Algorithm& other) {
            return std::memcmp(&other.algo, &result.algo, sizeof other.algo) == 0;
          }))
        algorithms.push_back({result.algo, result.workspaceSize});
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
      past;  // of a device state that is gone; threads may still read them
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
        "[matmul] cuBLASLt offers no algorithm for {}[{}, {}] x [{}, {}], {} at a time, with {} "
        "bytes of workspace",
        name_of(key.dtype), key.cols, key.depth, key.depth, key.rows, key.batches,
        kMatmulWorkspace);
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
  std::unique_ptr<MatmulPlan>& entry = all.by_key[key];
  if (entry && entry->on == stream.on) return *entry;  // another thread was faster
  if (entry) all.past.push_back(std::move(entry));
  entry = std::move(plan);
  return *entry;
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

TransposedCopies::TransposedCopies(const MatmulKey& key, std::uint8_t pretransposed) {
  for (int i = 0; i < 2; ++i) {
    const std::uint8_t which = i == 0 ? pretranspose_x : pretranspose_y;
    if (!(pretransposed & which)) continue;
    const auto count =
        static_cast<std::int64_t>(pretransposed_bytes(key, which) / size_of(key.dtype));
    memory[i] = make_tensor(key.dtype, {&count, 1}, Device(DeviceType::cuda, key.device));
    data[i] = memory[i].data();
  }
}

cublasStatus_t run_with(const MatmulPlan& plan, const MatmulOperands& operands,
                        const TransposedCopies& copies, void* workspace, cu::CudaStream& stream) {
  const MatmulKey &key = plan.key, &inner = plan.inner;
  const void *x = operands.x, *y = operands.y;
  // `rows` by `cols` as stored.
  const auto transpose = [&](const void*& operand, void* to, std::int64_t rows, std::int64_t cols,
                             std::int64_t leading, std::int64_t to_leading, std::int64_t batch,
                             std::int64_t to_batch) {
    transpose_matrices({operand, to, rows, cols, leading, to_leading, batch, to_batch,
                        batch == 0 ? 1 : key.batches},
                       key.dtype, stream);
    operand = to;
  };
  if (plan.pretransposed & pretranspose_x)
    transpose(x, copies.data[0], key.transpose_x ? key.depth : key.rows,
              key.transpose_x ? key.rows : key.depth, key.leading_x, inner.leading_x, key.batch_x,
              inner.batch_x);
  if (plan.pretransposed & pretranspose_y)
    transpose(y, copies.data[1], key.transpose_y ? key.cols : key.depth,
              key.transpose_y ? key.depth : key.cols, key.leading_y, inner.leading_y, key.batch_y,
              inner.batch_y);
  const MatmulDescriptors& of = plan.descriptors;
  constexpr float kNarrow[2] = {1, 0};
  constexpr double kWide[2] = {1, 0};
  const bool wide = key.dtype == f64;
  const void* alpha = wide ? static_cast<const void*>(&kWide[0]) : &kNarrow[0];
  const void* beta = wide ? static_cast<const void*>(&kWide[1]) : &kNarrow[1];
  // No copy of the descriptor: a library newer than the headers may have a larger one.
  std::unique_lock<std::mutex> naming_bias;
  if (key.epilogue == Epilogue::bias) {
    naming_bias = std::unique_lock(plan.bias);
    BRRR_CUDA(cublasLtMatmulDescSetAttribute, of.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER,
              &operands.bias, sizeof operands.bias);
  }
  return BRRR_CUDA_TRY(cublasLtMatmul, plan.library, of.operation.get(), alpha, x, of.x.get(), y,
                       of.y.get(), beta, operands.d, of.d.get(), operands.d, of.d.get(),
                       &plan.algorithm.algo, workspace, plan.algorithm.workspace, stream.handle);
}

void run(const MatmulPlan& plan, const MatmulOperands& operands, cu::CudaStream& stream) {
  const TransposedCopies copies(plan.key, plan.pretransposed);
  const std::size_t bytes = plan.algorithm.workspace;
  void* workspace = bytes == 0 ? nullptr : workspace_of(stream, bytes).data;
  cu::check<cu::Fn::k_cublasLtMatmul>(run_with(plan, operands, copies, workspace, stream));
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
  for (int i = 0; i < kMaxDevices; ++i) {
    Libraries::Opened& mine = libraries().opened[i];
    const cu::DeviceState* on = mine.on.exchange(nullptr);
    const cublasLtHandle_t handle = std::exchange(mine.handle, nullptr);
    // A handle of a device that was shut down has no context left to release its resources in.
    if (on && on == cu::device_states[i].load()) BRRR_CUDA_TRY(cublasLtDestroy, handle);
  }
}

}  // namespace brrr::on_cuda
