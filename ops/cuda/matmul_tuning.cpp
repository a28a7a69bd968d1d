#include "brrr/ops/cuda/matmul_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <type_traits>
#include <utility>

#include "brrr/ops/cuda/workspace.h"
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/cuda_relaxed_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::on_cuda {
namespace {

struct DestroyHandle {
  void operator()(CUevent event) const { BRRR_CUDA_TRY(cuEventDestroy, event); }
  void operator()(CUgraph graph) const { BRRR_CUDA_TRY(cuGraphDestroy, graph); }
  void operator()(CUgraphExec program) const { BRRR_CUDA_TRY(cuGraphExecDestroy, program); }
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyHandle>;

Owned<CUevent> new_event() {
  CUevent event = nullptr;
  BRRR_CUDA(cuEventCreate, &event, CU_EVENT_DEFAULT);
  return Owned<CUevent>(event);
}

// A pair of events, and the time between them.
class Clock {
 public:
  // Blocks until the work that the stream has now is done.
  void wait_for(const cu::CudaStream& stream) {
    BRRR_CUDA(cuEventRecord, start_.get(), stream.handle);
    BRRR_CUDA(cuEventSynchronize, start_.get());
  }

  template <class Work>
  double microseconds(CUstream stream, Work&& work) {
    BRRR_CUDA(cuEventRecord, start_.get(), stream);
    work();
    BRRR_CUDA(cuEventRecord, stop_.get(), stream);
    BRRR_CUDA(cuEventSynchronize, stop_.get());
    float milliseconds = 0;
    BRRR_CUDA(cuEventElapsedTime, &milliseconds, start_.get(), stop_.get());
    return 1e3 * milliseconds;
  }

 private:
  Owned<CUevent> start_ = new_event(), stop_ = new_event();
};

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// Products are timed on a private stream. On the caller's stream, another thread's launches would
// be captured below and lost; on a stream of the pool, another thread's synchronization of the
// device would fail because of the capture.
struct TuningStream {
  std::mutex mutex;  // locked for a whole measurement: two at once would disturb each other
  cu::CudaStream stream;

  void prepare(cu::DeviceState& device) {
    if (stream.on == &device) return;
    BRRR_CUDA(cuStreamCreate, &stream.handle, CU_STREAM_NON_BLOCKING);
    stream.device = Device(DeviceType::cuda, device.index);
    stream.on = &device;
  }
};
TuningStream& tuning_stream(int device) {
  static TuningStream* streams = new TuningStream[kMaxDevices];
  return streams[device];
}

// Several runs captured in one graph, so that the time of short products is measured without that
// of their launches. The capture affects only this thread and this stream, so it is not counted in
// DeviceState::captures.
class Repeated {
 public:
  template <class Work>
  Repeated(cu::CudaStream& stream, int times, Work&& work) {
    BRRR_CUDA(cuStreamBeginCapture, stream.handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    try {
      for (int i = 0; i < times; ++i) work();
    } catch (...) {
      end(stream);  // the first failure is the one to report
      throw;
    }
    cu::check<cu::Fn::k_cuStreamEndCapture>(end(stream));
    CUgraphExec program = nullptr;
    BRRR_CUDA(cuGraphInstantiate, &program, graph_.get(), 0);
    program_.reset(program);
  }

  void launch(CUstream stream) { BRRR_CUDA(cuGraphLaunch, program_.get(), stream); }

 private:
  CUresult end(cu::CudaStream& stream) noexcept {
    CUgraph graph = nullptr;
    const CUresult code = BRRR_CUDA_TRY(cuStreamEndCapture, stream.handle, &graph);
    // The stream must be usable again, whatever kept the capture from ending.
    if (code != CUDA_SUCCESS) BRRR_CUDA_TRY(cuStreamEndCapture, stream.handle, &graph);
    graph_.reset(graph);
    return code;
  }

  Owned<CUgraph> graph_;
  Owned<CUgraphExec> program_;
};

constexpr double kShort = 60;  // microseconds: below it, one run between two events is mostly noise

// The GPU time of one run; measured only roughly if it is long or far from the best.
template <class Work>
double time_of(cu::CudaStream& stream, Clock& clock, double best, Work&& work) {
  constexpr int kSamples = 7, kInGraph = 20;
  work();
  double once = clock.microseconds(stream.handle, work);
  for (int i = 0; i < 2; ++i) once = std::min(once, clock.microseconds(stream.handle, work));
  if (once >= kShort || (best > 0 && once > std::max(2 * best, best + 20))) return once;
  std::vector<double> times;
  Repeated repeated(stream, kInGraph, work);
  repeated.launch(stream.handle);
  for (int i = 0; i < kSamples; ++i) {
    times.push_back(clock.microseconds(stream.handle, [&] { repeated.launch(stream.handle); }) /
                    kInGraph);
  }
  return median(times);
}

bool faster(const AlgorithmCandidate& a, const AlgorithmCandidate& b) {
  return (a.microseconds < 0) != (b.microseconds < 0) ? b.microseconds < 0
                                                      : a.microseconds < b.microseconds;
}

// How many of the sorted candidates take at most `factor` times as long as the best.
std::size_t within(double factor, std::span<const AlgorithmCandidate> candidates) {
  std::size_t count = 0;
  while (count < candidates.size() && candidates[count].microseconds >= 0 &&
         candidates[count].microseconds <= factor * candidates[0].microseconds) {
    ++count;
  }
  return count;
}

// Times candidates round-robin, in several rounds, and sorts them. Timed one after the other, each
// would run at another clock, which falls by a fifth as the GPU grows hot: more than candidates
// differ. A round runs each candidate for `stretch` microseconds, at least twice; the time of a
// candidate is that of rank `rank` among the rounds.
void time_interleaved(std::span<AlgorithmCandidate> candidates, int rounds, int rank,
                      double stretch, const TimeOfRuns& time) {
  std::vector<std::vector<double>> times(candidates.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const int runs = std::max(2, static_cast<int>(stretch / candidates[i].microseconds));
      times[i].push_back(time(candidates[i], runs) / runs);
    }
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    candidates[i].microseconds = times[i][static_cast<std::size_t>(rank)];
  }
  std::ranges::stable_sort(candidates, faster);
}

}  // namespace

void add_host_times(std::vector<AlgorithmCandidate>& candidates, const TimeOfRuns& host) {
  constexpr int kRounds = 7, kInRow = 10;
  constexpr double kNoise = 1.15;
  std::ranges::stable_sort(candidates, faster);
  if (candidates.empty() || candidates[0].microseconds >= kShort) return;
  const std::size_t count = within(3, candidates);
  std::vector<double> least(count, std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < count; ++i)
      least[i] = std::min(least[i], host(candidates[i], kInRow) / kInRow);
  }
  const double free = kNoise * *std::min_element(least.begin(), least.end());
  for (std::size_t i = 0; i < count; ++i)
    candidates[i].microseconds += std::max(0.0, least[i] - free);
  std::ranges::stable_sort(candidates, faster);
}

void narrow_down(std::vector<AlgorithmCandidate>& candidates, const TimeOfRuns& time) {
  std::ranges::stable_sort(candidates, faster);
  if (within(1, candidates) == 0) return;
  if (candidates[0].microseconds < kShort) {
    candidates.resize(within(3, candidates));
    time_interleaved(candidates, 9, 4, 300, time);
    return;
  }
  candidates.resize(within(1.5, candidates));
  time_interleaved(candidates, 5, 0, 0, time);
  candidates.resize(std::min<std::size_t>(within(1.1, candidates), 6));
  time_interleaved(candidates, 9, 4, 3000, time);
}

const AlgorithmCandidate& choice_of(std::span<const AlgorithmCandidate> candidates) {
  constexpr double kNoise = 1.01;
  const auto equal = candidates.first(within(kNoise, candidates));
  return *std::min_element(equal.begin(), equal.end(),
                           [](const AlgorithmCandidate& a, const AlgorithmCandidate& b) {
                             return a.offered < b.offered;
                           });
}

namespace {

// The sets of operands whose transposition may pay.
std::vector<std::uint8_t> layouts_to_try(const MatmulKey& key) {
  std::vector<std::uint8_t> layouts = {pretranspose_none};
  // Below about 2^28 multiply-adds the copies' launches alone cost more than they can save.
  const double work = static_cast<double>(key.rows) * static_cast<double>(key.cols) *
                      static_cast<double>(key.depth) * key.batches;
  if (!key.tf32 || work < 268435456.0) return layouts;
  if (!key.transpose_x) layouts.push_back(pretranspose_x);
  if (key.transpose_y) layouts.push_back(pretranspose_y);
  if (!key.transpose_x && key.transpose_y) layouts.push_back(pretranspose_x | pretranspose_y);
  return layouts;
}

std::int64_t elements_of_result(const MatmulKey& key) {
  return (key.batches - 1) * key.batch_d + (key.cols - 1) * key.leading_d + key.rows;
}

Tensor scratch(std::int64_t count, DType dtype, Device device) {
  return make_tensor(dtype, {&count, 1}, device);
}

// What a measurement runs: products of the caller's operands, on the tuning stream, with their
// results in scratch memory.
class Measurement {
 public:
  Measurement(const MatmulKey& key, const MatmulOperands& operands, const cu::CudaStream& caller)
      : key_(key),
        device_(*caller.on),
        workspace_(Device(DeviceType::cuda, key.device), kMatmulWorkspace),
        result_(scratch(elements_of_result(key), key.dtype, Device(DeviceType::cuda, key.device))),
        operands_(operands),
        layouts_(layouts_to_try(key)),
        copies_(key, std::accumulate(layouts_.begin(), layouts_.end(), std::uint8_t{0},
                                     std::bit_or<std::uint8_t>())),
        own_(tuning_stream(key.device)) {
    operands_.d = result_.data();
    // The operands and the scratch memory are the caller's stream's. The wait comes before the
    // lock: work on that stream may itself wait for a thread that measures.
    clock_.wait_for(caller);
    lock_ = std::unique_lock(own_.mutex);
    own_.prepare(device_);
  }
  ~Measurement() { BRRR_CUDA_TRY(cuStreamSynchronize, own_.stream.handle); }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  // Each algorithm that the library offers, with a rough time.
  std::vector<AlgorithmCandidate> first_look(int most_per_layout) {
    const cublasLtHandle_t library = matmul_library(device_);
    std::vector<AlgorithmCandidate> candidates;
    double best = 0;
    for (const std::uint8_t pretransposed : layouts_) {
      MatmulPlan plan(key_, pretransposed, device_);
      for (const Algorithm& algorithm :
           offered_algorithms(library, plan.inner, plan.descriptors, most_per_layout, true)) {
        if (algorithm.workspace > kMatmulWorkspace) continue;
        plan.algorithm = algorithm;
        AlgorithmCandidate candidate{pretransposed, algorithm, static_cast<int>(candidates.size()),
                                     -1};
        const cublasStatus_t status = launch(plan);
        // Skips an algorithm that turns out not to support the problem; other failures throw.
        if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) {
          cu::check<cu::Fn::k_cublasLtMatmul>(status);
          candidate.microseconds = time_of(own_.stream, clock_, best, [&] { run(plan, 1); });
          if (best == 0 || candidate.microseconds < best) best = candidate.microseconds;
        }
        candidates.push_back(candidate);
      }
    }
    return candidates;
  }

  // Of short products, some runs are one graph.
  double device_time(const AlgorithmCandidate& candidate, int runs) {
    MatmulPlan& plan = plan_of(candidate);
    const CUstream stream = own_.stream.handle;
    if (candidate.microseconds >= kShort)
      return clock_.microseconds(stream, [&] { run(plan, runs); });
    const auto [found, made] =
        graphs_.try_emplace(candidate.offered, own_.stream, runs, [&] { run(plan, 1); });
    Repeated& graph = found->second;
    if (made) graph.launch(stream);
    return clock_.microseconds(stream, [&] { graph.launch(stream); });
  }

  double host_time(const AlgorithmCandidate& candidate, int runs) {
    MatmulPlan& plan = plan_of(candidate);
    const auto start = std::chrono::steady_clock::now();
    run(plan, runs);
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - start;
    BRRR_CUDA(cuStreamSynchronize, own_.stream.handle);
    return taken.count();
  }

 private:
  cublasStatus_t launch(const MatmulPlan& plan) {
    return run_with(plan, operands_, copies_, workspace_.data(), own_.stream);
  }
  void run(const MatmulPlan& plan, int times) {
    for (int i = 0; i < times; ++i) cu::check<cu::Fn::k_cublasLtMatmul>(launch(plan));
  }
  MatmulPlan& plan_of(const AlgorithmCandidate& candidate) {
    MatmulPlan& plan =
        plans_.try_emplace(candidate.pretransposed, key_, candidate.pretransposed, device_)
            .first->second;
    plan.algorithm = candidate.algorithm;
    return plan;
  }

  const MatmulKey& key_;
  cu::DeviceState& device_;
  const cu::Scratch workspace_;
  const Tensor result_;
  MatmulOperands operands_;
  const std::vector<std::uint8_t> layouts_;
  const TransposedCopies copies_;
  const cu::RelaxedCapture relaxed_;  // another thread may begin to capture during the measurement
  Clock clock_;
  TuningStream& own_;
  std::unique_lock<std::mutex> lock_;
  std::map<std::uint8_t, MatmulPlan> plans_;
  std::map<int, Repeated> graphs_;  // of short products, by their place among the offered ones
};

}  // namespace

std::vector<AlgorithmCandidate> measure_candidates(const MatmulKey& key,
                                                   const MatmulOperands& operands,
                                                   cu::CudaStream& stream, int most_per_layout) {
  if (stream.on->captures.load() != 0)
    fail("[matmul] algorithms cannot be measured while a stream is being captured");
  Measurement measurement(key, operands, stream);
  std::vector<AlgorithmCandidate> candidates = measurement.first_look(most_per_layout);
  narrow_down(candidates, [&](const AlgorithmCandidate& candidate, int runs) {
    return measurement.device_time(candidate, runs);
  });
  add_host_times(candidates, [&](const AlgorithmCandidate& candidate, int runs) {
    return measurement.host_time(candidate, runs);
  });
  return candidates;
}

void release_tuning() {
  for (int i = 0; i < kMaxDevices; ++i) {
    TuningStream& own = tuning_stream(i);
    const std::lock_guard lock(own.mutex);
    const cu::DeviceState* on = std::exchange(own.stream.on, nullptr);
    const CUstream handle = std::exchange(own.stream.handle, nullptr);
    // A stream of a device that was shut down was destroyed with its context.
    if (on && on == cu::device_states[i].load()) BRRR_CUDA_TRY(cuStreamDestroy, handle);
  }
}

std::string tuning_name(const MatmulKey& key, const std::string& gpu, int driver,
                        std::size_t library, std::size_t workspace_limit) {
  MatmulKey anywhere = key;
  anywhere.device = 0;
  unsigned char bytes[sizeof anywhere];
  std::memcpy(bytes, &anywhere, sizeof bytes);
  return fmt::format("matmul 6 gpu {} driver {} cublasLt {} workspace {} key {:02x}", gpu, driver,
                     library, workspace_limit, fmt::join(bytes, ""));
}

namespace {

struct StoredTuning {
  char magic[8];
  std::uint64_t algorithm[sizeof(cublasLtMatmulAlgo_t) / 8];
  std::uint64_t workspace;
  std::uint64_t pretransposed;
  double microseconds;
};
constexpr char kMagic[8] = {'m', 'a', 't', 'm', 'u', 'l', '0', '1'};

}  // namespace

std::string to_bytes(const Tuned& tuned) {
  StoredTuning stored{};
  std::memcpy(stored.magic, kMagic, sizeof kMagic);
  std::memcpy(stored.algorithm, &tuned.algorithm.algo, sizeof stored.algorithm);
  stored.workspace = tuned.algorithm.workspace;
  stored.pretransposed = tuned.pretransposed;
  stored.microseconds = tuned.microseconds;
  return std::string(reinterpret_cast<const char*>(&stored), sizeof stored);
}

std::optional<Tuned> tuned_from(std::string_view bytes) {
  StoredTuning stored;
  if (bytes.size() != sizeof stored) return {};
  std::memcpy(&stored, bytes.data(), sizeof stored);
  if (std::memcmp(stored.magic, kMagic, sizeof kMagic) != 0 ||
      stored.pretransposed > (pretranspose_x | pretranspose_y))
    return {};
  Tuned tuned;
  std::memcpy(&tuned.algorithm.algo, stored.algorithm, sizeof stored.algorithm);
  tuned.algorithm.workspace = stored.workspace;
  tuned.pretransposed = static_cast<std::uint8_t>(stored.pretransposed);
  tuned.microseconds = stored.microseconds;
  return tuned;
}

std::unique_ptr<MatmulPlan> tuned_plan(const MatmulKey& key, const MatmulOperands& operands,
                                       cu::CudaStream& stream) {
  const std::string name = tuning_name(key, stream.on->name, cu::driver_version(),
                                       BRRR_CUDA_TRY(cublasLtGetVersion), kMatmulWorkspace);
  const jit::Hash128 entry = jit::hash_of(name);
  std::string bytes;
  if (jit::disk_cache::read(entry, "matmul", bytes) == jit::disk_cache::Found::yes) {
    if (const auto tuned = tuned_from(bytes)) {
      auto plan = std::make_unique<MatmulPlan>(key, tuned->pretransposed, *stream.on);
      plan->algorithm = tuned->algorithm;
      cublasLtMatmulHeuristicResult_t result{};
      const MatmulDescriptors& of = plan->descriptors;
      const cublasStatus_t status =
          BRRR_CUDA_TRY(cublasLtMatmulAlgoCheck, plan->library, of.operation.get(), of.x.get(),
                        of.y.get(), of.d.get(), of.d.get(), &plan->algorithm.algo, &result);
      if (status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kMatmulWorkspace) {
        plan->algorithm.workspace = result.workspaceSize;
        return plan;
      }
    }
  }
  if (stream.on->captures.load() != 0) return nullptr;
  std::vector<AlgorithmCandidate> candidates;
  try {
    candidates = measure_candidates(key, operands, stream);
  } catch (const OutOfMemory&) {
    return nullptr;  // the product itself may still fit into memory
  }
  if (candidates.empty() || candidates[0].microseconds < 0) return nullptr;
  const AlgorithmCandidate& best = choice_of(candidates);
  jit::disk_cache::write(entry, "matmul",
                         to_bytes({best.algorithm, best.pretransposed, best.microseconds}));
  auto plan = std::make_unique<MatmulPlan>(key, best.pretransposed, *stream.on);
  plan->algorithm = best.algorithm;
  return plan;
}

}  // namespace brrr::on_cuda
