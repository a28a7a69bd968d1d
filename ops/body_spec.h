// A body with the space that it is computed over: what a kernel is made for, on any device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <brrr/ops/jit/body.h>
#include <brrr/tensor/dims.h>

namespace brrr {

// Whether the two factors of a product are contiguous along its sum: both, one of them, or none.
// Tensor cores of Hopper read TF32 only so. Other factors cost instructions that transpose them, in
// other types and in kernels of small products, too.
enum class FactorOrder : std::uint8_t { along, mixed, across };

// A body over a space. All operands are tensors of the space's rank, but for placed inputs: an
// input has stride 0 along dimensions in which it does not vary, and a result of rows has size 1
// along those reduced.
struct BodySpec {
  // An input whose tensor is any that has its elements: the element of the space's origin is
  // `shift` elements from the tensor's first, and may be outside of it (Body::Bound).
  struct Placed {
    int input = 0;
    Dims strides;
    std::int64_t shift = 0;
  };
  jit::Body body;
  Dims dims;
  std::vector<Placed> placed;
  std::vector<Dims> coordinates;  // the strides of each, see Body::indices
  // Of what is reduced first, the strides that it has eagerly: they decide in what order the CPU
  // combines elements. Empty: those of the first input per element.
  Dims order;
  std::uint32_t reduced = 0;  // bits: dimensions that reductions combine
  std::int64_t unread = 0;    // bytes of inputs that are gathered from, and not read
  std::vector<std::uint64_t> scalars;
  // In all, of its contraction, functions such as exp, and random numbers.
  std::int64_t flops = 0, product_flops = 0, functions = 0, draws = 0;
  FactorOrder factors = FactorOrder::along;  // of its contraction
  // A body that runs beside this one in the same launch; its operands follow. Products on CUDA have
  // it.
  std::shared_ptr<const BodySpec> beside;
};

// A body and the strides of its operands, inputs first.
struct BodyStrides {
  const BodySpec& spec;
  std::span<const Dims> strides;
};
}  // namespace brrr
