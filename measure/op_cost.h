// What an op call has to do, by its shapes: arithmetic, and bytes read and written once each.
#pragma once

#include <cstdint>
#include <span>

#include <brrr/dispatch/call.h>

namespace brrr::measure {

struct Cost {
  std::int64_t flops = 0;
  std::int64_t bytes = 0;

  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
};

// Views and `empty` cost nothing. A product of m×k and k×n is 2mnk flops; of a pointwise expression
// or a reduction each operation is one. Bytes are those of all inputs and outputs; what an input
// repeats by broadcasting counts once.
Cost cost_of(const Call& call, std::span<const Tensor> outputs);

// Whether the call has a backend do anything.
bool does_work(const Call& call);

}  // namespace brrr::measure
