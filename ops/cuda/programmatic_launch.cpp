#include "brrr/ops/cuda/programmatic_launch.h"

#include "brrr/tensor/cuda_runtime.h"

namespace brrr::on_cuda {

void launch_programmatic(CUfunction kernel, Grid grid, unsigned threads,
                         const cu::CudaStream& stream, void** arguments, unsigned shared_bytes) {
  if (thread_context.kernel_collection) [[unlikely]]
    return;
  ProgrammaticLaunch& programmatic = thread_context.programmatic_launch;
  const bool early = programmatic == ProgrammaticLaunch::always && stream.on->major >= 9;
  if (programmatic == ProgrammaticLaunch::after_first) programmatic = ProgrammaticLaunch::always;
  const auto x = static_cast<unsigned>(grid.x), y = static_cast<unsigned>(grid.y),
             z = static_cast<unsigned>(grid.z);
  if (!early) {
    BRRR_CUDA(cuLaunchKernel, kernel, x, y, z, threads, 1, 1, shared_bytes, stream.handle,
              arguments, nullptr);
    return;
  }
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config{.gridDimX = x,
                              .gridDimY = y,
                              .gridDimZ = z,
                              .blockDimX = threads,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .sharedMemBytes = shared_bytes,
                              .hStream = stream.handle,
                              .attrs = &attribute,
                              .numAttrs = 1};
  BRRR_CUDA(cuLaunchKernelEx, &config, kernel, arguments, nullptr);
}

}  // namespace brrr::on_cuda
