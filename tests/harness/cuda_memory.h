// Helpers of the tests of CUDA memory.
#pragma once

#include "tests/harness/allocator_guards.h"
#include <brrr/tensor/runtime.h>
#include <brrr/tensor/stream.h>
#include <brrr/tensor/tensor.h>
#include <brrr/tensor/tensor_impl.h>

namespace brrr::testing {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr Device gpu = cuda(0);

inline Tensor bytes_on_gpu(std::size_t bytes) {
  const std::int64_t shape[] = {static_cast<std::int64_t>(bytes / 4)};
  return make_tensor(i32, shape, gpu);
}

inline void use_on(const Tensor& tensor, const Stream& stream) {
  cuda_runtime().record_use(*TensorImpl::of(tensor)->storage, *StreamState::of(stream));
}

}  // namespace brrr::testing
