// Copies of whole contiguous tensors between host memory, the CPU and CUDA devices, on the devices'
// current streams. Copies with strides or conversions are ops.
#pragma once

#include <span>

#include <brrr/tensor/tensor.h>

namespace brrr {

// With `yes` the caller must not access the host memory until the stream has executed the copy
// (record an event, or synchronize). Only copies of pinned memory on CUDA are asynchronous; other
// memory has been staged, or written, at return. With `no` the host memory may be reused, or read,
// at return.
enum class Async : bool { no, yes };

void copy_from_host(const Tensor& to, const void* host, Async async = Async::no);
void copy_to_host(void* host, const Tensor& from, Async async = Async::no);

// Copies between two tensors of equally many bytes, from any device to any other. Waits only where
// exactly one side is the CPU; between CUDA devices each one's current stream waits for the
// other's. `async` applies to a CPU side in pinned memory: until the stream has executed the copy,
// its values must not be accessed; the tensor may be destroyed.
void copy_bytes(const Tensor& to, const Tensor& from, Async async = Async::no);

// An uninitialized contiguous CPU tensor in pinned memory, which CUDA devices can access. Throws if
// there is no CUDA device.
Tensor make_pinned_tensor(DType dtype, std::span<const std::int64_t> shape);
bool is_pinned(const Tensor& tensor);

}  // namespace brrr
