#include "brrr/graph/cuda_boundary_copies.h"

#include <algorithm>
#include <cstring>

#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"

namespace brrr::sources {
extern const char boundary_copies_cu[];
}

namespace brrr::graph {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kOfBlock = kThreads * 16 * 4;  // bytes
constexpr std::size_t kMostBlocks = 512;

}  // namespace

std::string boundary_copies_source() { return sources::boundary_copies_cu; }

void BoundaryCopies::add(const CopyRange& copy) {
  copies_.push_back(copy);
  if (kernels_.empty() || kernels_.back().count == kMost) kernels_.emplace_back();
  CopyKernel& kernel = kernels_.back();
  kernel.ranges.range[kernel.count++].bytes = copy.bytes;
  const std::size_t blocks = std::clamp<std::size_t>(copy.bytes / kOfBlock, 1, kMostBlocks);
  kernel.blocks = std::max(kernel.blocks, static_cast<unsigned>(blocks));
}

void BoundaryCopies::prepare(std::span<BoundaryCopies* const> all) {
  if (std::ranges::all_of(all, &BoundaryCopies::empty)) return;
  const std::vector<CUfunction> functions =
      jit::load_kernels(all[0]->device_, {"copy_arguments", "copy_results", "write_back_arguments"},
                        boundary_copies_source());
  for (BoundaryCopies* each : all)
    each->function_ = functions[static_cast<std::size_t>(each->kind_)];
}

namespace {

template <class Kernels, class Copies>
void fill(Kernels& kernels, const Copies& copies) {
  std::size_t next = 0;
  for (auto& kernel : kernels) {
    for (unsigned i = 0; i < kernel.count; ++i, ++next) {
      kernel.ranges.range[i].from = copies[next].from;
      kernel.ranges.range[i].to = copies[next].to;
    }
  }
}

}  // namespace

void BoundaryCopies::launch(cu::CudaStream& stream) {
  fill(kernels_, copies_);
  for (CopyKernel& kernel : kernels_) {
    void* arguments[] = {&kernel.ranges};
    BRRR_CUDA(cuLaunchKernel, function_, kernel.blocks, kernel.count, 1, kThreads, 1, 1, 0,
              stream.handle, arguments, nullptr);
  }
}

void BoundaryCopies::find_nodes(std::span<const CUgraphNode> nodes) {
  if (empty()) return;
  for (CopyKernel& kernel : kernels_) kernel.node = nullptr;
  for (const CUgraphNode node : nodes) {
    CUDA_KERNEL_NODE_PARAMS params{};
    const CUresult code = BRRR_CUDA_TRY(cuGraphKernelNodeGetParams, node, &params);
    if (code == CUDA_ERROR_INVALID_VALUE) continue;  // no kernel
    cu::check<cu::Fn::k_cuGraphKernelNodeGetParams>(code);
    if (params.func != function_) continue;
    const auto mine = std::find_if(kernels_.begin(), kernels_.end(), [&](const CopyKernel& k) {
      return !k.node && std::memcmp(params.kernelParams[0], &k.ranges, sizeof k.ranges) == 0;
    });
    if (mine != kernels_.end()) mine->node = node;
  }
  for (const CopyKernel& each : kernels_) {
    if (!each.node) fail("[compile] expected the captured graph to have the copies at its edges");
  }
}

void BoundaryCopies::set_addresses(CUgraphExec exec) {
  if (empty()) return;
  fill(kernels_, copies_);
  for (CopyKernel& kernel : kernels_) {
    void* arguments[] = {&kernel.ranges};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = function_;
    params.gridDimX = kernel.blocks;
    params.gridDimY = kernel.count;
    params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.blockDimX = kThreads;
    params.kernelParams = arguments;
    BRRR_CUDA(cuGraphExecKernelNodeSetParams, exec, kernel.node, &params);
  }
}

}  // namespace brrr::graph
