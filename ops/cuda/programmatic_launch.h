// Programmatic dependent launch of brrr's own kernels. Each calls `wait_for_previous_kernel()`
// before it reads memory that the previous kernel may write, so the device can set it up while that
// kernel's last blocks end.
#pragma once

#include <cstdint>

#include <brrr/tensor/cuda_stream.h>
#include <brrr/tensor/thread_context.h>

namespace brrr::on_cuda {

enum class ProgrammaticLaunch : std::uint8_t {
  always,
  after_first,  // the first launch waits for other lanes of a captured graph too
  never,
};

// Sets the mode of this thread's launches until the end of a scope. The default is `always`.
using ProgrammaticScope = ContextScope<&ThreadContext::programmatic_launch>;

// The size of a grid, in blocks.
struct Grid {
  std::int64_t x = 1, y = 1, z = 1;
};

// Launches a kernel in which every block calls `wait_for_previous_kernel()`; not for other kernels.
void launch_programmatic(CUfunction kernel, Grid grid, unsigned threads,
                         const cu::CudaStream& stream, void** arguments, unsigned shared_bytes = 0);

}  // namespace brrr::on_cuda
