// Replaces the CUDA measurements in a build without the toolkit's headers: every device is refused.
#include "brrr/measure/device_recorder.h"
#include "brrr/measure/gpu_state.h"
#include "brrr/measure/limits.h"
#include "brrr/measure/machine.h"
#include "brrr/measure/step_cost.h"
#include "brrr/tensor/runtime.h"

namespace brrr::measure {

Batch device_copy(Device device, std::int64_t) {
  require_device(device, "device_copy");
  return {};
}

MultiplyAdds device_multiply_adds(Device device, DType) {
  require_device(device, "device_multiply_adds");
  return {};
}

std::optional<BareLaunches> bare_launches(Device device, const std::function<void()>&) {
  require_device(device, "bare_launches");
  return std::nullopt;
}

BareMatmul bare_matmul(Device device, const MatmulProblem&, std::span<const Tensor>,
                       std::span<const Tensor>) {
  require_device(device, "bare_matmul");
  return {};
}

CudaLaunches cuda_launches(const std::function<void()>& work) {
  work();
  return {};
}

std::unique_ptr<DeviceRecorder> record_cuda(Device device) {
  require_device(device, "record_timeline");
  return nullptr;
}

GpuState gpu_state(Device device) {
  require_device(device, "gpu_state");
  return {};
}

std::vector<Gpu> describe_gpus() { return {}; }
std::vector<Library> describe_cuda_libraries() { return {}; }

}  // namespace brrr::measure
