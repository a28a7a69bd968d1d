// Launching hand-written kernels, and keeping them per device.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "tensor/cuda_api.h"
#include "tensor/stream.h"

namespace brrr::on_cuda {

struct Grid {
  std::int64_t x = 1, y = 1, z = 1;
};

// The arguments are passed as they are: their types must be those of the kernel's parameters, or begin with them.
template <class... Args>
void launch(CUfunction kernel, Grid grid, int threads, CUstream stream, const Args&... args) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
  BRRR_CUDA(cuLaunchKernel, kernel, static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
            static_cast<unsigned>(grid.z), static_cast<unsigned>(threads), 1, 1, 0, stream, pointers, nullptr);
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// One block per `each` pieces of work, as many as keep every multiprocessor busy; kernels loop over the rest.
inline std::int64_t blocks_for(std::int64_t work, std::int64_t each, int multiprocessors, int per_multiprocessor = 16) {
  return std::clamp<std::int64_t>(ceil_div(work, each), 1, std::int64_t{multiprocessors} * per_multiprocessor);
}

// Kernels of one file, by device and variant. `load` makes one that is missing; it may run twice when threads race.
template <int kVariants>
class Kernels {
 public:
  template <class Load>
  CUfunction get(Device device, int variant, Load&& load) {
    std::atomic<CUfunction>& slot = slots_[device.index][variant];
    CUfunction kernel = slot.load(std::memory_order_acquire);
    if (!kernel) [[unlikely]] {
      kernel = load();
      slot.store(kernel, std::memory_order_release);
    }
    return kernel;
  }

 private:
  std::atomic<CUfunction> slots_[kMaxDevices][kVariants] = {};
};

}  // namespace brrr::on_cuda
