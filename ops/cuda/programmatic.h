// Launching our own kernels. Every one of them begins with `in_turn()`, so in a captured graph it
// may be set up while the kernel before it in its lane still runs: a chain of tiny kernels then
// takes 0.6 us a kernel instead of 1.0. Beginning so costs each block half a microsecond: kernels
// of very many blocks do without, and must be launched plainly.
#pragma once

#include "tensor/cuda_api.h"

namespace brrr::on_cuda {

enum class Early : std::uint8_t {
  never,
  from_second,  // the first launch waits for other lanes too
  always,
};
extern thread_local constinit Early early_launches;

// What launches on this thread are while it lives.
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

void launch_early(CUfunction kernel, Blocks blocks, unsigned threads, unsigned shared_bytes,
                  CUstream stream, void** arguments);

inline void launch_plainly(CUfunction kernel, Blocks blocks, unsigned threads, CUstream stream,
                           void** arguments, unsigned shared_bytes = 0) {
  BRRR_CUDA(cuLaunchKernel, kernel, blocks.x, blocks.y, blocks.z, threads, 1, 1, shared_bytes,
            stream, arguments, nullptr);
}
inline void launch_in_turn(CUfunction kernel, Blocks blocks, unsigned threads, CUstream stream,
                           void** arguments, unsigned shared_bytes = 0) {
  if (early_launches != Early::never) [[unlikely]]
    return launch_early(kernel, blocks, threads, shared_bytes, stream, arguments);
  launch_plainly(kernel, blocks, threads, stream, arguments, shared_bytes);
}

}  // namespace brrr::on_cuda
