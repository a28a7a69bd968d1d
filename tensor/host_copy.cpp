#include "brrr/tensor/host_copy.h"

#include <cstring>
#include <optional>

#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_work.h"
#include "brrr/tensor/runtime.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr {
namespace {

void require_contiguous(const Tensor& tensor, const char* op) {
  if (!tensor.defined() || tensor.is_meta() || !tensor.is_contiguous()) {
    fail("[{}] expected a contiguous tensor with memory, got {}{}", op_or(op), tensor.describe(),
         !tensor.defined()  ? ""
         : tensor.is_meta() ? " without memory"
                            : ", which is not contiguous");
  }
}

StreamState& current_state(Device device) {
  StreamState* state = thread_context.stream(device);
  return state ? *state : *runtime_of(device.type).default_stream(device);
}

// Records that `stream` uses the tensor's memory. Call it before issuing work, so that the use is
// recorded even if issuing fails half way.
void use(const Tensor& tensor, StreamState& stream) {
  if (Storage* storage = TensorImpl::of(tensor)->storage; storage && storage->stream != &stream) {
    cuda_runtime().record_use(*storage, stream);
  }
}

// Runs work that owns its tensors, in the order of the CPU's current stream.
template <class F>
void on_cpu_stream(F&& work) {
  if (StreamState* queue = current_cpu_queue()) {
    queue->enqueue(std::forward<F>(work));
  } else {
    work();
  }
}

void wait_for_cpu_queue() {
  if (StreamState* queue = current_cpu_queue()) queue->synchronize();
}

void copy_between_cuda(const Tensor& to, const Tensor& from, std::size_t bytes) {
  StreamState& stream = current_state(to.device());
  StreamState& source = current_state(from.device());
  if (&source != &stream) order_streams(source, stream);
  use(to, stream);
  use(from, stream);
  cuda_runtime().copy(stream, to.data(), from.data(), bytes);
  if (&source != &stream) order_streams(stream, source);
}

// A copy between the host and a tensor: `on_cpu` performs it, `on_cuda` issues it to a stream and
// returns whether it has ended.
template <class OnCpu, class OnCuda>
void copy_with_host(const Tensor& tensor, Async async, OnCpu on_cpu, OnCuda on_cuda) {
  if (tensor.device().is_cpu()) {
    on_cpu_stream(std::move(on_cpu));
    if (async == Async::no) wait_for_cpu_queue();
    return;
  }
  StreamState& stream = current_state(tensor.device());
  use(tensor, stream);
  if (!on_cuda(stream) && async == Async::no) stream.synchronize();
}

}  // namespace

void copy_from_host(const Tensor& to, const void* host, Async async) {
  require_contiguous(to, "copy_from_host");
  const std::size_t bytes = to.bytes();
  if (bytes == 0) return;
  if (!host) fail("[copy_from_host] expected the values of {}, got null", to.describe());
  copy_with_host(
      to, async, [to, host, bytes] { std::memcpy(to.data(), host, bytes); },
      [&](StreamState& s) { return cuda_runtime().from_host(s, to.data(), host, bytes); });
}

void copy_to_host(void* host, const Tensor& from, Async async) {
  require_contiguous(from, "copy_to_host");
  const std::size_t bytes = from.bytes();
  if (bytes == 0) return;
  std::optional<HostScope> waiting;
  if (async == Async::no) waiting.emplace(HostActivity::wait, "copy_to_host");
  copy_with_host(
      from, async, [from, host, bytes] { std::memcpy(host, from.data(), bytes); },
      [&](StreamState& s) { return cuda_runtime().to_host(s, host, from.data(), bytes); });
}

void copy_bytes(const Tensor& to, const Tensor& from, Async async) {
  require_contiguous(to, "copy");
  require_contiguous(from, "copy");
  const std::size_t bytes = to.bytes();
  if (bytes != from.bytes()) {
    fail("[{}] expected {} bytes for {}, got {}", op_or("copy"), bytes, to.describe(),
         from.describe());
  }
  if (bytes == 0) return;
  if (to.device().is_cpu() && from.device().is_cpu()) {
    on_cpu_stream([to, from, bytes] { std::memmove(to.data(), from.data(), bytes); });
  } else if (from.device().is_cpu()) {
    wait_for_cpu_queue();  // the producer of `from` may be in flight
    use(from, current_state(to.device()));
    copy_from_host(to, from.data(), async);
  } else if (to.device().is_cpu()) {
    wait_for_cpu_queue();  // readers of `to` may be in flight
    use(to, current_state(from.device()));
    copy_to_host(to.data(), from, async);
  } else {
    copy_between_cuda(to, from, bytes);
  }
}

Tensor make_pinned_tensor(DType dtype, std::span<const std::int64_t> shape) {
  const char* op = op_or("make_pinned_tensor");
  const Dims dims(shape);
  const std::int64_t numel = checked_numel(dims, size_of(dtype), op);
  require_device(cuda(), op);
  Storage* storage =
      cuda_runtime().new_pinned_storage(static_cast<std::size_t>(numel) * size_of(dtype));
  return make_tensor_on(storage, dtype, dims, contiguous_strides(dims), 0);
}

bool is_pinned(const Tensor& tensor) {
  require_defined("is_pinned", tensor);
  return tensor.device().is_cpu() && !tensor.is_meta() && cuda_runtime().is_pinned(tensor.data());
}

}  // namespace brrr
