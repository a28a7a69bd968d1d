// Kernels that users give as CUDA source: compiled once, then launched with pointers and attributes
// in order.
#include "brrr/ops/registered.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"

namespace brrr::on_cuda {

namespace {

// A compiled kernel on one device.
struct Loaded {
  CUfunction function = nullptr;
  unsigned shared_bytes = 0;  // the limit of dynamic shared memory that was set
};

struct RegisteredKernels {
  std::mutex mutex;
  // Definitions are never freed.
  std::map<std::pair<const CudaKernel*, const cu::DeviceState*>, Loaded> of;
};

CUfunction ready_function(const CudaKernel& kernel, const cu::DeviceState* state, Device device,
                          unsigned shared_bytes) {
  static auto* kernels = new RegisteredKernels;
  std::lock_guard lock(kernels->mutex);
  Loaded& loaded = kernels->of[{&kernel, state}];
  if (!loaded.function)
    loaded.function = jit::load_kernel(device, kernel.entry.c_str(), kernel.source);
  // Shared memory that the source declares itself counts towards the 48 KB that need no attribute,
  // so the attribute is set for any request.
  if (shared_bytes > loaded.shared_bytes) {
    BRRR_CUDA(cuFuncSetAttribute, loaded.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
              static_cast<int>(shared_bytes));
    loaded.shared_bytes = shared_bytes;
  }
  return loaded.function;
}

}  // namespace

void run_kernel_source(const CudaKernel& kernel, const Call& call, Tensor* outputs, int n_outputs) {
  const Device device = outputs[0].device();
  cu::CudaStream& stream = cu::current_stream(device);
  const LaunchConfig launch = kernel.launch(call, outputs);
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0) return;  // nothing to do
  }
  const CUfunction function = ready_function(kernel, stream.on, device, launch.shared_bytes);
  std::vector<Tensor> inputs;
  std::vector<std::int64_t> values;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i)
    inputs.push_back(contiguous_here(call.input(static_cast<int>(i))));
  for (const Tensor& input : inputs) values.push_back(reinterpret_cast<std::int64_t>(input.data()));
  for (int i = 0; i < n_outputs; ++i)
    values.push_back(reinterpret_cast<std::int64_t>(outputs[i].data()));
  for (int i = 0; i < call.n_attrs; ++i) values.push_back(call.attrs[i].bits);
  std::vector<void*> arguments;
  for (std::int64_t& value : values) arguments.push_back(&value);
  BRRR_CUDA(cuLaunchKernel, function, launch.grid[0], launch.grid[1], launch.grid[2],
            launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes, stream.handle,
            arguments.data(), nullptr);
}

}  // namespace brrr::on_cuda
