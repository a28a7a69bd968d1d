// A body with the space that it is computed over: the description of a generated kernel, for any
// device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <brrr/ops/jit/body.h>
#include <brrr/tensor/dims.h>

namespace brrr {

// Whether the two factors of a product are contiguous along its sum: both, one of them, or neither.
// Hopper's tensor cores read TF32 only along the sum. Other orders cost instructions that
// transpose, in kernels of small products for other types, too.
enum class FactorOrder : std::uint8_t { along, mixed, across };

// A body over a space. All operands except placed inputs are tensors of the space's rank: an input
// has stride 0 along dimensions in which it does not vary, and a result of a reduction has size 1
// along the reduced dimensions.
struct BodySpec {
  // An input that is addressed relative to some tensor which contains its elements. The element for
  // the space's origin is `shift` elements from the tensor's first, possibly outside of the tensor
  // (Body::Bound).
  struct Placed {
    int input = 0;
    Dims strides;
    std::int64_t shift = 0;
  };
  jit::Body body;
  Dims dims;
  std::vector<Placed> placed;
  std::vector<Dims> coordinates;  // the strides of each, see Body::indices
  // The strides that the first reduction's operand has in eager execution. They determine the order
  // in which the CPU combines elements. Empty: those of the first input per element.
  Dims order;
  std::uint32_t reduced = 0;  // bits: dimensions that reductions combine
  std::int64_t unread = 0;    // bytes of gathered inputs that the kernel does not read
  std::vector<std::uint64_t> scalars;
  // In all, of its contraction, functions such as exp, and random numbers.
  std::int64_t flops = 0, product_flops = 0, functions = 0, draws = 0;
  FactorOrder factors = FactorOrder::along;  // of its contraction
  // A second body in the same launch, whose operands follow this one's. Only for products on CUDA.
  std::shared_ptr<const BodySpec> next;
};

// A body and the strides of its operands, inputs first.
struct BodyStrides {
  const BodySpec& spec;
  std::span<const Dims> strides;
};
}  // namespace brrr
