#include "brrr/io/strided_bytes.h"

#include <fmt/format.h>

#include <cstring>

#include "brrr/tensor/error.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/stream_state.h"
#include "brrr/tensor/tensor_impl.h"
#include "brrr/tensor/thread_context.h"

namespace brrr {
namespace {

// A shape and strides with dimensions of one element dropped and neighbours merged where they form
// one run; the innermost dimension is last.
struct Walk {
  Dims shape, strides;

  explicit Walk(const Tensor& tensor) {
    for (int i = 0; i < tensor.rank(); ++i) {
      const std::int64_t d = tensor.shape()[i], s = tensor.strides()[i];
      if (d == 1) continue;
      const int last = shape.size() - 1;
      if (last >= 0 && strides[last] == s * d) {
        shape[last] *= d;
        strides[last] = s;
      } else {
        shape.push_back(d);
        strides.push_back(s);
      }
    }
    if (shape.empty()) {
      shape.push_back(1);
      strides.push_back(1);
    }
  }
};

template <class Word>
void gather(char* out, const char* from, const Walk& walk) {
  const int outer = walk.shape.size() - 1;
  const std::int64_t run = walk.shape[outer], step = walk.strides[outer];
  Dims at = Dims::filled(outer, 0);
  while (true) {
    if (step == 1) {
      std::memcpy(out, from, run * sizeof(Word));
    } else {
      for (std::int64_t i = 0; i < run; ++i) {
        std::memcpy(out + i * sizeof(Word),
                    from + i * step * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
      }
    }
    out += run * sizeof(Word);
    int dim = outer - 1;
    for (; dim >= 0; --dim) {
      const std::int64_t bytes = walk.strides[dim] * static_cast<std::int64_t>(sizeof(Word));
      from += bytes;
      if (++at[dim] < walk.shape[dim]) break;
      from -= bytes * walk.shape[dim];
      at[dim] = 0;
    }
    if (dim < 0) return;
  }
}

// Copies the whole range of memory that a CUDA view spans, as a view of the same strides on the
// host.
Tensor range_on_host(const Tensor& tensor) {
  std::int64_t low = 0, high = 0;
  for (int i = 0; i < tensor.rank(); ++i) {
    const std::int64_t last = (tensor.shape()[i] - 1) * tensor.strides()[i];
    (last < 0 ? low : high) += last;
  }
  const std::int64_t length[] = {high - low + 1}, one[] = {1};
  const Tensor range = make_view(tensor, length, one, low);
  const Tensor host = make_tensor(tensor.dtype(), length, cpu);
  copy_to_host(host.data(), range);
  return make_view(host, tensor.shape(), tensor.strides(), -low);
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
  const Walk walk(cpu_tensor);
  char* to = static_cast<char*>(out);
  const char* from = static_cast<const char*>(cpu_tensor.data());
  switch (size_of(cpu_tensor.dtype())) {
    case 1: return gather<std::uint8_t>(to, from, walk);
    case 2: return gather<std::uint16_t>(to, from, walk);
    case 4: return gather<std::uint32_t>(to, from, walk);
    default: return gather<std::uint64_t>(to, from, walk);
  }
}

Tensor contiguous_on_host(const Tensor& tensor, const char* op) {
  refuse_ordering_in_trace(op);
  if (!tensor.defined() || tensor.is_meta()) {
    fail(fmt::format("[{}] expected a tensor with data, got {}{}", op,
                     tensor.defined() ? "the meta tensor " : "", tensor.describe()));
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
