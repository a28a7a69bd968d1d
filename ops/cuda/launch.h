// Launching hand-written kernels: grids and arguments.
#pragma once

#include <algorithm>
#include <cstdint>

#include <brrr/ops/cuda/programmatic_launch.h>
#include <brrr/ops/jit/geometry.h>
#include <brrr/tensor/cuda_stream.h>

namespace brrr::on_cuda {

// The arguments are passed as they are: their types must be those of the kernel's parameters, or
// begin with them.
template <class... Args>
void launch(CUfunction kernel, Grid grid, int threads, const cu::CudaStream& stream,
            const Args&... args) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
  launch_programmatic(kernel, grid, static_cast<unsigned>(threads), stream, pointers);
}

using jit::ceil_div;

// One block per `each` pieces of work, as many as keep every multiprocessor busy; kernels loop over
// the rest.
inline std::int64_t blocks_for(std::int64_t work, std::int64_t each, int multiprocessors,
                               int per_multiprocessor = 16) {
  return std::clamp<std::int64_t>(ceil_div(work, each), 1,
                                  std::int64_t{multiprocessors} * per_multiprocessor);
}

}  // namespace brrr::on_cuda
