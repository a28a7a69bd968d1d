// Elements of strided tensors as plain bytes in row-major order, for files and other libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <brrr/tensor/tensor.h>

namespace brrr {

// The number of elements of a shape, or nothing when a dimension is negative or the bytes do not
// fit into 63 bits. For sizes that come from outside, where the caller words the error.
std::optional<std::int64_t> try_numel(std::span<const std::int64_t> shape,
                                      std::size_t element_size);

// Writes the elements of a CPU tensor of any strides to `out`, in order. Waits for nothing.
void gather_bytes(void* out, const Tensor& cpu_tensor);

// The same elements as a contiguous CPU tensor whose values are ready: the tensor itself if
// possible, else a copy. Errors name `op`.
Tensor contiguous_on_host(const Tensor& tensor, const char* op);

}  // namespace brrr
