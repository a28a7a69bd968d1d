// The GPUs and the versions of the CUDA libraries, as the driver reports them.
#include <fmt/format.h>

#include "brrr/measure/cupti_recorder.h"
#include "brrr/measure/machine.h"
#include "brrr/tensor/cuda_api.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/runtime.h"

namespace brrr::measure {
namespace {

// 13000 becomes "13.0".
std::string dotted(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

std::vector<Gpu> describe_gpus() {
  std::vector<Gpu> gpus;
  for (int i = 0; i < device_count(DeviceType::cuda); ++i) {
    const cu::DeviceState& device = cu::device_state(i);
    gpus.push_back({.index = i,
                    .name = device.name,
                    .memory_bytes = static_cast<std::int64_t>(device.total_memory),
                    .compute_capability = fmt::format("{}.{}", device.major, device.minor),
                    .multiprocessors = device.multiprocessors,
                    .l2_bytes = device.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)});
  }
  return gpus;
}

std::vector<Library> describe_cuda_libraries() {
  std::vector<Library> libraries;
  const auto add = [&](const char* name, cu::Library library, auto version) {
    Library found{.name = name, .version = {}, .problem = cu::open_library(library)};
    if (found.problem.empty()) found.version = version();
    libraries.push_back(std::move(found));
  };
  add("CUDA driver", cu::Library::driver, [] { return dotted(cu::driver_version()); });
  add("NVRTC", cu::Library::nvrtc, [] { return dotted(cu::nvrtc_version()); });
  add("cuBLASLt", cu::Library::cublaslt, [] {
    const std::size_t version = BRRR_CUDA_TRY(cublasLtGetVersion);
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  });
  add("CUPTI", cu::Library::cupti, [] { return cupti_version(); });
  return libraries;
}

}  // namespace brrr::measure
