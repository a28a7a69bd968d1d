// Bytes of whole tensors between host memory, the CPU and CUDA devices. All tensors here are
// contiguous; what needs strides or another dtype is an op. Work goes to the devices' current
// streams.
#pragma once

#include <span>

#include <brrr/tensor/tensor.h>

namespace brrr {

// With `yes` the caller keeps the host memory as it is until the stream has got there (record an
// event, or synchronize). CUDA makes use of that for pinned memory; any other has been copied to
// staging, or written, at return. With `no` the host memory may be reused, or read, at return.
enum class Async : bool { no, yes };

void copy_from_host(const Tensor& to, const void* host, Async async = Async::no);
void copy_to_host(void* host, const Tensor& from, Async async = Async::no);

// The same number of bytes from any device to any other. Waits only where one side is the CPU and
// the other is not; between CUDA devices each one's current stream waits for the other's. `async`
// is about a CPU side in pinned memory: its values belong to the stream until it has got there, but
// its handle may go, for the memory is kept that long.
void copy_bytes(const Tensor& to, const Tensor& from, Async async = Async::no);

// A tensor on the CPU in memory that CUDA reads and writes by itself. Uninitialized, contiguous;
// throws where there is no CUDA device.
Tensor make_pinned_tensor(DType dtype, std::span<const std::int64_t> shape);
bool is_pinned(const Tensor& tensor);

}  // namespace brrr
