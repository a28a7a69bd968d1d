// Launching our own kernels. Every one of them begins with `in_turn()`, so it may be set up while
// the kernel before it on its stream still runs: a launch then costs the host less (2.8 us instead
// of 3.2), and a chain of tiny kernels in a captured graph takes 0.6 us a kernel instead of 1.0.
// Beginning so costs each block half a microsecond: kernels of very many blocks do without, and
// must be launched plainly.
#pragma once

#include "tensor/cuda_api.h"
#include "tensor/cuda_runtime.h"

namespace brrr::on_cuda {

enum class Early : std::uint8_t {
  never,
  from_second,  // the first launch waits for other lanes of a captured graph too
  always,
};
extern thread_local constinit Early early_launches;

// What launches on this thread are while it lives; else they are early always.
class Programmatic {
 public:
  explicit Programmatic(Early early) : before_(early_launches) { early_launches = early; }
  ~Programmatic() { early_launches = before_; }
  Programmatic(const Programmatic&) = delete;
  Programmatic& operator=(const Programmatic&) = delete;

 private:
  Early before_;
};

struct Blocks {
  unsigned x = 1, y = 1, z = 1;
};

// For kernels that begin with `in_turn()`, and no others.
void launch_in_turn(CUfunction kernel, Blocks blocks, unsigned threads,
                    const cu::CudaStream& stream, void** arguments, unsigned shared_bytes = 0);

inline void launch_plainly(CUfunction kernel, Blocks blocks, unsigned threads,
                           const cu::CudaStream& stream, void** arguments,
                           unsigned shared_bytes = 0) {
  BRRR_CUDA(cuLaunchKernel, kernel, blocks.x, blocks.y, blocks.z, threads, 1, 1, shared_bytes,
            stream.handle, arguments, nullptr);
}

}  // namespace brrr::on_cuda
