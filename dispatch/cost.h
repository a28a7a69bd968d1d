// The cost of an op call, by its shapes: arithmetic, and bytes of operands and results, each
// counted once. Every row of the table has a function for its arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include <brrr/dispatch/call.h>

namespace brrr::core {

struct Cost {
  std::int64_t flops = 0;
  std::int64_t bytes = 0;

  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
};

// Views and `empty` cost nothing. A product of m×k and k×n is 2mnk flops; in a pointwise expression
// or a reduction each operation is one flop.
Cost cost_of(const Call& call, std::span<const Tensor> outputs);

// Whether the call runs a kernel.
bool does_work(const Call& call);

// The bytes of a tensor's elements; an element that is repeated by broadcasting counts once.
std::int64_t distinct_bytes(DType dtype, std::span<const std::int64_t> shape,
                            std::span<const std::int64_t> strides);
inline std::int64_t distinct_bytes(const Tensor& x) {
  return distinct_bytes(x.dtype(), x.shape(), x.strides());
}
// Of all inputs and outputs.
std::int64_t operand_bytes(const Call& call, std::span<const Tensor> outputs);
// The cost of a call that computes nothing: its operands' bytes.
inline Cost cost_of_moving(const Call& call, std::span<const Tensor> outputs) {
  return {0, operand_bytes(call, outputs)};
}

}  // namespace brrr::core
