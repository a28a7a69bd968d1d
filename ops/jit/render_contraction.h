// The kernel of small contractions: products whose results go through the body's values on their
// way to memory, and whose factors may be computed from what is loaded. The tile is the one that an
// eager product of the same shape runs (matmul_small.cu), so sums have eager's bits; the body's
// source takes the place of its entry.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <brrr/ops/jit/contraction.h>
#include <brrr/ops/jit/small_product.h>

namespace brrr::jit {

// One of the bodies in a launch.
struct ContractionPart {
  const Body* body;
  Contraction contraction;
  SmallSchedule schedule;  // its layouts are those of stored factors
  // Of the inputs of computed factors.
  std::vector<OperandLayout> computed_a = {}, computed_b = {};
  // What is loaded before the wait for the previous kernel: factors, and all other inputs. With
  // both factors only what follows the product waits.
  bool prefetch_a = false, prefetch_b = false, prefetch_others = false;
};
// `alignment_of`: of the address of an input. `is_final`: whether its elements are final before the
// previous kernel ends.
ContractionPart contraction_part(const BodySpec& spec, Contraction contraction,
                                 const std::function<int(int)>& alignment_of,
                                 const std::function<bool(int)>& is_final);

// Of each input of a computed factor, A's first, the strides from one line to the next and along
// it.
std::vector<std::int64_t> strides_of_computed(const Body& body, const Contraction& contraction);

// The kernel's source, with the entry `contraction`. Of each part the entry takes outputs, inputs,
// scalars, Geometry of the results, SmallFactors, the strides of computed factors if there are any,
// and PartOfGrid.
std::string contraction_source(std::span<const ContractionPart> parts);

}  // namespace brrr::jit
