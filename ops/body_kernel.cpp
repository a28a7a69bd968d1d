#include "brrr/ops/body_kernel.h"

#include "brrr/tensor/fail.h"

namespace brrr {

StridedSpace space_of(const BodySpec& spec, std::uint32_t mask,
                      std::span<const Tensor* const> operands) {
  StridedSpace space = space_of(spec.dims);
  for (const Tensor* each : operands) add_operand(space, *each);
  return choose_dims(space, mask);
}

bool is_generated([[maybe_unused]] Device device, const BodySpec& spec,
                  [[maybe_unused]] std::span<const Dims> strides) {
  if (spec.body.contraction() < 0) return true;
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::is_generated(spec, strides);
#endif
  return false;
}

double share_of_device([[maybe_unused]] Device device, [[maybe_unused]] const BodySpec& spec,
                       [[maybe_unused]] std::span<const Dims> strides) {
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::share_of_device(device, spec, strides);
#endif
  return 1;
}

std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(Device device,
                                                           std::span<const BodyOperands> bodies) {
  if (bodies.empty()) return {};
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::make_body_kernels(bodies);
#endif
  if (!device.is_cpu()) fail("[fuse] has no kernels for {}", to_string(device));
  return on_cpu::make_body_kernels(bodies);
}

}  // namespace brrr
