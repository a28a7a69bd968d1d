#include "ops/cuda/programmatic.h"

#include <utility>

namespace brrr::on_cuda {

thread_local constinit Early early_launches = Early::never;

void launch_early(CUfunction kernel, Blocks blocks, unsigned threads, unsigned shared_bytes,
                  CUstream stream, void** arguments) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = blocks.x, config.gridDimY = blocks.y, config.gridDimZ = blocks.z;
  config.blockDimX = threads, config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = shared_bytes;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = std::exchange(early_launches, Early::always) == Early::always ? 1 : 0;
  BRRR_CUDA(cuLaunchKernelEx, &config, kernel, arguments, nullptr);
}

}  // namespace brrr::on_cuda
