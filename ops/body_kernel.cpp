#include "brrr/ops/body_kernel.h"

#include <fmt/format.h>

#include "brrr/tensor/error.h"

namespace brrr {

std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(Device device,
                                                           std::span<const BodyOperands> bodies) {
  if (bodies.empty()) return {};
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::make_body_kernels(bodies);
#endif
  if (!device.is_cpu()) fail(fmt::format("[fuse] has no kernels for {}", to_string(device)));
  return on_cpu::make_body_kernels(bodies);
}

}  // namespace brrr
