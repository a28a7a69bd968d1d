// Counts the kernel launches of some work in the table of CUDA calls, or captures them and launches
// the kernels again without any other host work.
#include <memory>
#include <vector>

#include "brrr/measure/limits.h"
#include "brrr/measure/step_cost.h"
#include "brrr/tensor/cuda_api.h"
#include "brrr/tensor/cuda_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_stream.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"

namespace brrr::measure {
namespace {

// The kernels of some work, captured in a graph, which owns copies of their arguments.
class CapturedKernels {
 public:
  CapturedKernels(cu::CudaStream& stream, const std::function<void()>& work) : pool_(*stream.on) {
    cu::begin_capture(pool_, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    try {
      work();
    } catch (...) {
      end(stream);
      throw;
    }
    graph_ = cu::end_capture(pool_, stream);
    only_kernels_ = read_kernels();
  }
  ~CapturedKernels() {
    if (graph_) BRRR_CUDA_TRY(cuGraphDestroy, graph_);
  }
  CapturedKernels(const CapturedKernels&) = delete;
  CapturedKernels& operator=(const CapturedKernels&) = delete;

  bool only_kernels() const { return only_kernels_; }
  int kernels() const { return static_cast<int>(kernels_.size()); }

  void launch(CUstream stream) const {
    for (const Kernel& kernel : kernels_) {
      const CUDA_KERNEL_NODE_PARAMS& p = kernel.params;
      if (kernel.cluster.value.clusterDim.x == 0) {
        BRRR_CUDA(cuLaunchKernel, p.func, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX,
                  p.blockDimY, p.blockDimZ, p.sharedMemBytes, stream, p.kernelParams, p.extra);
        continue;
      }
      CUlaunchAttribute cluster = kernel.cluster;
      const CUlaunchConfig config{.gridDimX = p.gridDimX,
                                  .gridDimY = p.gridDimY,
                                  .gridDimZ = p.gridDimZ,
                                  .blockDimX = p.blockDimX,
                                  .blockDimY = p.blockDimY,
                                  .blockDimZ = p.blockDimZ,
                                  .sharedMemBytes = p.sharedMemBytes,
                                  .hStream = stream,
                                  .attrs = &cluster,
                                  .numAttrs = 1};
      BRRR_CUDA(cuLaunchKernelEx, &config, p.func, p.kernelParams, p.extra);
    }
  }

 private:
  struct Kernel {
    CUDA_KERNEL_NODE_PARAMS params{};
    CUlaunchAttribute cluster{};  // dimension 0: no cluster
  };

  bool read_kernels() {
    std::size_t count = 0;
    BRRR_CUDA(cuGraphGetNodes, graph_, nullptr, &count);
    std::vector<CUgraphNode> nodes(count);
    BRRR_CUDA(cuGraphGetNodes, graph_, nodes.data(), &count);
    for (const CUgraphNode node : nodes) {
      Kernel& kernel = kernels_.emplace_back();
      if (BRRR_CUDA_TRY(cuGraphKernelNodeGetParams, node, &kernel.params) != CUDA_SUCCESS)
        return false;
      kernel.cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      BRRR_CUDA(cuGraphKernelNodeGetAttribute, node, kernel.cluster.id, &kernel.cluster.value);
    }
    return true;
  }

  // Ends the capture after a failure, whose error is the one to report.
  void end(cu::CudaStream& stream) noexcept {
    try {
      if (CUgraph graph = cu::end_capture(pool_, stream)) BRRR_CUDA_TRY(cuGraphDestroy, graph);
    } catch (const CudaError&) {
    }
  }

  cu::CapturePool pool_;
  CUgraph graph_ = nullptr;
  std::vector<Kernel> kernels_;
  bool only_kernels_ = false;
};

}  // namespace

std::optional<BareLaunches> bare_launches(Device device, const std::function<void()>& work) {
  work();  // compiles its kernels
  synchronize(device);
  const auto captured = std::make_shared<const CapturedKernels>(cu::current_stream(device), work);
  if (!captured->only_kernels() || captured->kernels() == 0) return std::nullopt;
  return BareLaunches{[captured, device] { captured->launch(cu::current_stream(device).handle); },
                      captured->kernels()};
}

CudaLaunches cuda_launches(const std::function<void()>& work) {
  struct Counting {
    Counting() { cu::count_calls(true); }
    ~Counting() { cu::count_calls(false); }
  } counting;
  work();
  const std::int64_t library = cu::call_count("cublasLtMatmul");
  return {cu::call_count("cuLaunchKernel") + cu::call_count("cuLaunchKernelEx") + library, library};
}

}  // namespace brrr::measure
