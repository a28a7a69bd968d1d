#include "brrr/io/strided_bytes.h"

#include <cstring>

#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/overlap.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/stream_state.h"
#include "brrr/tensor/strided_space.h"
#include "brrr/tensor/tensor_impl.h"
#include "brrr/tensor/thread_context.h"

namespace brrr {
namespace {

template <class Word>
void gather(char* out, const char* from, const StridedSpace& space, std::int64_t count) {
  constexpr std::int64_t kSize = sizeof(Word);
  const std::int64_t step = space.inner_stride(0) * kSize;
  each_run(space, 0, Coordinates(), count,
           [&](std::int64_t done, std::int64_t n, std::int64_t offset) {
             char* to = out + done * kSize;
             const char* run = from + offset * kSize;
             if (step == kSize) {
               std::memcpy(to, run, static_cast<std::size_t>(n * kSize));
             } else {
               for (std::int64_t i = 0; i < n; ++i)
                 std::memcpy(to + i * kSize, run + i * step, kSize);
             }
           });
}

// Copies the range of memory that a CUDA view reaches to the host, and views it there with the same
// strides.
Tensor range_on_host(const Tensor& tensor) {
  const auto [low, high] = extent_of(region_of(tensor));
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype()));
  const std::int64_t length[] = {(high - low) / size}, one[] = {1};
  const std::int64_t before = tensor.storage_offset() - low / size;  // elements below the first
  const Tensor host = make_tensor(tensor.dtype(), length, cpu);
  copy_to_host(host.data(), make_view(tensor, length, one, -before));
  return make_view(host, tensor.shape(), tensor.strides(), before);
}

}  // namespace

std::optional<std::int64_t> try_numel(std::span<const std::int64_t> shape,
                                      std::size_t element_size) {
  std::int64_t numel = 1, bytes = 0;
  bool empty = false;
  for (const std::int64_t d : shape) {
    if (d < 0) return std::nullopt;
    empty |= d == 0;
    if (d > 0 && __builtin_mul_overflow(numel, d, &numel)) return std::nullopt;
  }
  if (__builtin_mul_overflow(numel, static_cast<std::int64_t>(element_size), &bytes)) {
    return std::nullopt;
  }
  return empty ? 0 : numel;
}

void gather_bytes(void* out, const Tensor& cpu_tensor) {
  if (cpu_tensor.numel() == 0) return;
  if (cpu_tensor.is_contiguous()) {
    std::memcpy(out, cpu_tensor.data(), cpu_tensor.bytes());
    return;
  }
  StridedSpace space = space_of(cpu_tensor.shape());
  add_operand(space, cpu_tensor);
  coalesce(space);
  char* to = static_cast<char*>(out);
  const char* from = static_cast<const char*>(cpu_tensor.data());
  switch (size_of(cpu_tensor.dtype())) {
    case 1: return gather<std::uint8_t>(to, from, space, cpu_tensor.numel());
    case 2: return gather<std::uint16_t>(to, from, space, cpu_tensor.numel());
    case 4: return gather<std::uint32_t>(to, from, space, cpu_tensor.numel());
    default: return gather<std::uint64_t>(to, from, space, cpu_tensor.numel());
  }
}

Tensor contiguous_on_host(const Tensor& tensor, const char* op) {
  refuse_ordering_in_trace(op);
  if (!tensor.defined() || tensor.is_meta()) {
    fail("[{}] expected a tensor with data, got {}{}", op,
         tensor.defined() ? "the meta tensor " : "", tensor.describe());
  }
  if (tensor.device().is_cpu()) {
    if (StreamState* queue = current_cpu_queue()) queue->synchronize();
    if (tensor.is_contiguous()) return tensor;
  } else if (tensor.is_contiguous()) {
    Tensor host = make_tensor(tensor.dtype(), tensor.shape(), cpu);
    if (host.numel() > 0) copy_to_host(host.data(), tensor);
    return host;
  }
  Tensor host = make_tensor(tensor.dtype(), tensor.shape(), cpu);
  gather_bytes(host.data(), tensor.device().is_cpu() ? tensor : range_on_host(tensor));
  return host;
}

}  // namespace brrr
