// What the tests of CUDA memory share.
#pragma once

#include "tensor/allocator.h"
#include "tensor/runtime.h"
#include "tensor/tensor.h"

namespace brrr::testing {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr Device gpu = cuda(0);

inline Tensor bytes_on_gpu(std::size_t bytes) {
  const std::int64_t shape[] = {static_cast<std::int64_t>(bytes / 4)};
  return make_tensor(i32, shape, gpu);
}

inline void use_on(const Tensor& tensor, const Stream& stream) {
  cuda_runtime().record_use(*tensor.impl()->storage, *stream.state());
}

// In builds where every allocation is the system's own (address sanitizer), the cache is not there
// to be tested.
inline bool caches() {
  set_allocator_pass_through(false);
  return !allocator_pass_through();
}

struct PassThrough {
  PassThrough() { set_allocator_pass_through(true); }
  ~PassThrough() { set_allocator_pass_through(false); }
};

}  // namespace brrr::testing
