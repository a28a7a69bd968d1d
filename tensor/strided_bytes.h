// Elements of strided tensors as plain bytes in row-major order: what files and other libraries
// take.
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

// The same elements, contiguous and in host memory that may be read at once: the tensor itself when
// it is that already, else a copy. `op` names who asks, for errors.
Tensor contiguous_on_host(const Tensor& tensor, const char* op);

}  // namespace brrr
