// Replay on CUDA: the first run launches the kernels one by one, the second captures them as a CUDA
// graph, which later runs launch.

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/observe.h"
#include "brrr/graph/cuda_boundary_copies.h"
#include "brrr/graph/executor.h"
#include "brrr/ops/cuda/programmatic_launch.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_work.h"

namespace brrr::graph {
namespace {

// Defers reuse of a block of another stream until this stream's work has ended.
void used_here(Storage* storage, cu::CudaStream& stream) {
  if (storage && storage->stream && storage->stream != &stream)
    cuda_runtime().record_use(*storage, stream);
}

class CudaGraphExecutor final : public Executor {
 public:
  explicit CudaGraphExecutor(const Executable& executable);
  ~CudaGraphExecutor() override { invalidate(); }

  void prepare() override;
  void run(std::span<const Tensor> arguments, std::span<const ResultBlock> results) override;
  void invalidate() override;
  Stats stats() const override { return stats_; }

 private:
  std::vector<int> writers_of(int block) const;
  void set_edges(std::span<const Tensor> arguments, std::span<const ResultBlock> results,
                 cu::CudaStream& stream);
  void run_each(cu::CudaStream& stream);
  void capture(cu::CudaStream& stream);
  void capture_calls(cu::CudaStream& stream);
  std::vector<bool> awaited_calls() const;
  std::size_t captured_nodes(cu::CudaStream& stream) const;
  void describe_kernels();
  void run_captured(const Launch& launch) const;
  void require_capturing(cu::CudaStream& stream, const Launch& launch) const;
  [[noreturn]] void cannot_capture(const Launch& launch, const std::string& why) const;

  Executable run_;
  BoundaryCopies in_, out_, back_;
  std::vector<int> copied_in_;             // the arguments of `in_`
  std::vector<int> copied_back_;           // and of `back_`
  std::vector<std::vector<int>> writers_;  // of each result: the last call of each lane
  bool prepared_ = false, warm_ = false;
  std::unique_ptr<cu::CapturePool> pool_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  cu::CudaStream* captured_on_ = nullptr;
  Stats stats_;
  // Captured nodes when `in_` and when each launch was captured; 0: unknown, or none.
  std::size_t nodes_copied_in_ = 0;
  std::vector<std::size_t> nodes_after_;
  std::shared_ptr<const ReplayedKernels> kernels_;  // for listeners
};

CudaGraphExecutor::CudaGraphExecutor(const Executable& executable)
    : run_(executable),
      in_(BoundaryCopyKind::arguments, run_.graph.device),
      out_(BoundaryCopyKind::results, run_.graph.device),
      back_(BoundaryCopyKind::written_arguments, run_.graph.device) {
  const Graph& graph = run_.graph;
  const Flow flow(graph);
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const Buffer& buffer = graph.buffers[i];
    const int block = static_cast<int>(i);
    if (buffer.kind != Buffer::Kind::input || run_.plan.arena_offset[i] < 0) continue;
    char* const copy = run_.memory.address(block) + run_.plan.placements[i].offset;
    in_.add({nullptr, copy, buffer.bytes});
    copied_in_.push_back(buffer.input);
    if (flow.writers(block).empty()) continue;
    back_.add({copy, nullptr, buffer.bytes});
    copied_back_.push_back(buffer.input);
  }
  for (const int block : result_blocks(graph, run_.plan, run_.memory)) {
    out_.add({run_.memory.address(block), nullptr, graph.buffers[block].bytes});
    writers_.push_back(writers_of(block));
  }
}

void CudaGraphExecutor::invalidate() {
  if (exec_) BRRR_CUDA_TRY(cuGraphExecDestroy, std::exchange(exec_, nullptr));
  if (graph_) BRRR_CUDA_TRY(cuGraphDestroy, std::exchange(graph_, nullptr));
  pool_.reset();
  kernels_.reset();
}

// The last call of each lane that writes to a block. There may be several: the parts of a
// concatenation are computed in place, each in its own lane.
std::vector<int> CudaGraphExecutor::writers_of(int block) const {
  const Plan& plan = run_.plan;
  std::vector<int> of_lane(plan.lanes, -1);
  for (const Launch& launch : run_.launches) {
    for (const Value& v : launch.node->outputs) {
      if (plan.placement_of(v).block == block) of_lane[plan.lane[launch.index]] = launch.index;
    }
  }
  std::erase(of_lane, -1);
  return of_lane;
}

void CudaGraphExecutor::set_edges(std::span<const Tensor> arguments,
                                  std::span<const ResultBlock> results, cu::CudaStream& stream) {
  for (std::size_t i = 0; i < copied_in_.size(); ++i) {
    const Tensor& argument = arguments[copied_in_[i]];
    in_[i].from = argument.data();
    used_here(TensorImpl::of(argument)->storage, stream);
  }
  for (std::size_t i = 0; i < copied_back_.size(); ++i)
    back_[i].to = arguments[copied_back_[i]].data();
  for (std::size_t i = 0; i < results.size(); ++i) out_[i].to = results[i].storage->data;
  for (Storage* storage : run_.memory.outside()) used_here(storage, stream);
  used_here(run_.memory.arena_storage(), stream);
}

// Whether an error of a kernel's own launch says that the kernel cannot be made, and not that the
// machine failed.
bool is_refusal(const Error& error) {
  if (dynamic_cast<const OutOfMemory*>(&error)) return false;
  const auto* const of_cuda = dynamic_cast<const CudaError*>(&error);
  if (!of_cuda) return true;
  switch (of_cuda->code()) {  // of module loads; no library's has these
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_SOURCE: return true;
    default: return false;
  }
}

// The kernels are compiled in parallel: each takes tens of milliseconds.
void CudaGraphExecutor::prepare() {
  if (std::exchange(prepared_, true)) return;
  jit::KernelCollection kernels(run_.graph.device);
  const auto each = [this] {
    for (const Launch& launch : run_.launches) {
      if (!launch.body) continue;
      try {
        launch.run();
      } catch (const Error& error) {
        if (is_refusal(error)) throw RefusedKernel(error.what(), *launch.node);
        rethrow_with(launch.node->site);
      }
    }
  };
  each();  // collects
  kernels.compile();
  each();  // loads
}

void CudaGraphExecutor::run(std::span<const Tensor> arguments,
                            std::span<const ResultBlock> results) {
  cu::CudaStream& stream = cu::current_stream(run_.graph.device);
  run_.memory.arena().order(stream);
  set_edges(arguments, results, stream);
  if (!warm_) {
    // Kernels are compiled and products measured before the capture, which does not allow it.
    BoundaryCopies::prepare(std::array{&in_, &out_, &back_});
    prepare();
    run_each(stream);
    warm_ = true;
    return;
  }
  if (!exec_) capture(stream);
  in_.set_addresses(exec_);
  out_.set_addresses(exec_);
  back_.set_addresses(exec_);
  if (&stream != captured_on_) pool_->launched_on(stream);
  BRRR_CUDA(cuGraphLaunch, exec_, stream.handle);
  if (HostListener* const listener = host_listener.load(std::memory_order_acquire)) [[unlikely]] {
    if (!kernels_) describe_kernels();
    listener->replays(kernels_);
  }
  if (!observed()) [[likely]]
    return;
  for (const Launch& launch : run_.launches) {
    observe_before(launch.call);
    observe_after(launch.call, launch.results());
  }
}

void CudaGraphExecutor::run_each(cu::CudaStream& stream) {
  in_.launch(stream);
  run_in_order(run_.launches);
  out_.launch(stream);
  back_.launch(stream);
}

// An error in a capture names the call, whose kernel may be a user's.
void CudaGraphExecutor::run_captured(const Launch& launch) const {
  try {
    launch.run();
  } catch (const CudaError&) {
    rethrow_with(launch.node->site);
  } catch (const OutOfMemory&) {
    rethrow_with(launch.node->site);
  } catch (const Error& error) {
    cannot_capture(launch, error.what());
  }
}

void CudaGraphExecutor::cannot_capture(const Launch& launch, const std::string& why) const {
  fail("[{}] cannot be captured in a CUDA graph: {} (at {})", launch.name, why,
       describe(launch.node->site));
}

// Throws if this call made the driver invalidate the capture. The driver itself reports that only
// at the end of the capture, without the call.
void CudaGraphExecutor::require_capturing(cu::CudaStream& stream, const Launch& launch) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  BRRR_CUDA(cuStreamIsCapturing, stream.handle, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return;
  cannot_capture(launch, "it does what a graph cannot hold");
}

// The calls after which an event is needed: another lane, the copies of results, or the end of the
// graph waits for them.
std::vector<bool> CudaGraphExecutor::awaited_calls() const {
  const Plan& plan = run_.plan;
  std::vector<bool> awaited(run_.graph.nodes.size());
  std::vector<int> last(plan.lanes, -1);
  for (const Launch& launch : run_.launches) {
    const int lane = plan.lane[launch.index];
    for (int before : plan.predecessors[launch.index]) {
      if (plan.lane[before] != lane) awaited[before] = true;
    }
    last[lane] = launch.index;
  }
  for (int call : last) {
    if (call >= 0) awaited[call] = true;
  }
  for (const std::vector<int>& writers : writers_) {
    for (const int writer : writers) awaited[writer] = true;
  }
  return awaited;
}

// One stream for each lane, and one for the copies of results, which no call waits for.
class CaptureLanes {
 public:
  CaptureLanes(cu::CudaStream& origin, cu::CapturePool& pool, Device device, int lanes)
      : origin_(origin), pool_(pool), device_(device), lanes_(lanes) {}

  cu::CudaStream& operator[](int lane) {
    if (lane == 0) return origin_;
    if (!lanes_[lane]) {
      lanes_[lane].emplace(device_);
      pool_.join(static_cast<cu::CudaStream&>(*StreamState::of(*lanes_[lane])));
    }
    return static_cast<cu::CudaStream&>(*StreamState::of(*lanes_[lane]));
  }
  // Makes the lane's stream the current one.
  std::optional<StreamGuard> enter(int lane) {
    if (lane == 0) return std::nullopt;
    (*this)[lane];
    return std::optional<StreamGuard>(std::in_place, *lanes_[lane]);
  }

 private:
  cu::CudaStream& origin_;
  cu::CapturePool& pool_;
  Device device_;
  std::vector<std::optional<Stream>> lanes_;
};

void CudaGraphExecutor::capture_calls(cu::CudaStream& origin) {
  const Plan& plan = run_.plan;
  CaptureLanes lanes(origin, *pool_, run_.graph.device, plan.lanes + 1);
  const std::vector<bool> awaited = awaited_calls();
  std::vector<std::unique_ptr<EventState>> ended(run_.graph.nodes.size());
  std::vector<int> last(plan.lanes, -1);
  const auto record = [&](cu::CudaStream& stream) {
    auto event = cu::make_event(*origin.on, false);
    event->record(stream);
    return event;
  };

  in_.launch(origin);
  nodes_copied_in_ = captured_nodes(origin);
  nodes_after_.clear();
  for (const Launch& launch : run_.launches) {
    const int lane = plan.lane[launch.index];
    cu::CudaStream& stream = lanes[lane];
    bool waits_for_others = false;
    for (int before : plan.predecessors[launch.index]) {
      if (plan.lane[before] == lane) continue;
      ended[before]->make_wait(stream);
      waits_for_others = true;
    }
    {
      const std::optional<StreamGuard> here = lanes.enter(lane);
      using on_cuda::ProgrammaticLaunch;
      const on_cuda::ProgrammaticScope scope(!run_.programmatic ? ProgrammaticLaunch::never
                                             : waits_for_others ? ProgrammaticLaunch::after_first
                                                                : ProgrammaticLaunch::always);
      run_captured(launch);
    }
    require_capturing(stream, launch);
    nodes_after_.push_back(captured_nodes(stream));
    last[lane] = launch.index;
    if (awaited[launch.index]) ended[launch.index] = record(stream);
  }
  if (!out_.empty()) {
    cu::CudaStream& copies = lanes[plan.lanes];
    for (const std::vector<int>& writers : writers_) {
      for (const int writer : writers) ended[writer]->make_wait(copies);
    }
    out_.launch(copies);
    record(copies)->make_wait(origin);
  }
  for (std::size_t lane = 1; lane < last.size(); ++lane) {
    if (last[lane] >= 0) ended[last[lane]]->make_wait(origin);
  }
  back_.launch(origin);
}

// The number of nodes captured so far; 0 if the driver cannot tell.
std::size_t CudaGraphExecutor::captured_nodes(cu::CudaStream& stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
#if CUDA_VERSION >= 13000
  const CUresult code = BRRR_CUDA_TRY(cuStreamGetCaptureInfo, stream.handle, &status, nullptr,
                                      &graph, nullptr, nullptr, nullptr);
#else
  const CUresult code = BRRR_CUDA_TRY(cuStreamGetCaptureInfo, stream.handle, &status, nullptr,
                                      &graph, nullptr, nullptr);
#endif
  std::size_t count = 0;
  if (code != CUDA_SUCCESS || !graph ||
      BRRR_CUDA_TRY(cuGraphGetNodes, graph, nullptr, &count) != CUDA_SUCCESS)
    return 0;
  return count;
}

std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  std::size_t count = 0;
  BRRR_CUDA(cuGraphGetNodes, graph, nullptr, &count);
  std::vector<CUgraphNode> nodes(count);
  BRRR_CUDA(cuGraphGetNodes, graph, nodes.data(), &count);
  return nodes;
}

// Maps nodes to launches: nodes are listed in the order of capture, so those of a launch are
// between the count before it and the count after it.
void CudaGraphExecutor::describe_kernels() {
  const std::vector<CUgraphNode> nodes = nodes_of(graph_);
  std::size_t launch = 0;
  const bool counted = std::ranges::find(nodes_after_, 0u) == nodes_after_.end();
  auto kernels = std::make_shared<ReplayedKernels>();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    while (launch < nodes_after_.size() && i >= nodes_after_[launch]) ++launch;
    CUDA_KERNEL_NODE_PARAMS params{};
    if (BRRR_CUDA_TRY(cuGraphKernelNodeGetParams, nodes[i], &params) != CUDA_SUCCESS) continue;
    ReplayedKernel& kernel = kernels->emplace_back();
    const char* symbol = nullptr;
    if (params.func && BRRR_CUDA_TRY(cuFuncGetName, &symbol, params.func) == CUDA_SUCCESS)
      kernel.symbol = symbol;
    if (!counted || i < nodes_copied_in_ || launch == nodes_after_.size()) continue;
    kernel.launch = static_cast<int>(launch);
    kernel.ops = ops_of(run_.launches[launch]);
    kernel.lane = run_.plan.lane[run_.launches[launch].index];
  }
  kernels_ = std::move(kernels);
}

void CudaGraphExecutor::capture(cu::CudaStream& stream) {
  const auto start = std::chrono::steady_clock::now();
  pool_ = std::make_unique<cu::CapturePool>(*stream.on);
  cu::begin_capture(*pool_, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  try {
    capture_calls(stream);
  } catch (...) {
    try {
      if (const CUgraph partial = cu::end_capture(*pool_, stream))
        BRRR_CUDA_TRY(cuGraphDestroy, partial);
    } catch (const Error&) {  // the first error is the one to report
    }
    pool_.reset();
    throw;
  }
  try {
    graph_ = cu::end_capture(*pool_, stream);
    const std::vector<CUgraphNode> nodes = nodes_of(graph_);
    in_.find_nodes(nodes);
    out_.find_nodes(nodes);
    back_.find_nodes(nodes);
    stats_.nodes = static_cast<int>(nodes.size());
    BRRR_CUDA(cuGraphInstantiate, &exec_, graph_, 0);
    BRRR_CUDA(cuGraphUpload, exec_, stream.handle);
  } catch (...) {
    invalidate();
    throw;
  }
  stats_.scratch_bytes = pool_->bytes();
  captured_on_ = &stream;
  const auto end = std::chrono::steady_clock::now();
  stats_.capture_ms = std::chrono::duration<double, std::milli>(end - start).count();
}

}  // namespace

std::unique_ptr<Executor> make_cuda_graph_executor(const Executable& executable) {
  return std::make_unique<CudaGraphExecutor>(executable);
}

}  // namespace brrr::graph
