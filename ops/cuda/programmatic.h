// Launching our own kernels. Every one of them begins with `in_turn()`, so the device may set it up
// while the last blocks of the kernel before it end: a chain of tiny kernels takes 0.66 us a kernel
// instead of 1.0, and a launch costs the host 2.8 us instead of 3.2.
#pragma once

#include <cstdint>

#include <brrr/tensor/cuda_stream.h>

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

}  // namespace brrr::on_cuda
