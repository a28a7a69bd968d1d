// The kernel of small contractions: products whose results go through the body's values on their
// way to memory. The tile is the one that an eager product of the same shape runs
// (matmul_small.cu), so sums have eager's bits; the body's source takes the place of its entry.
#pragma once

#include <functional>
#include <span>
#include <string>

#include <brrr/ops/jit/contraction.h>
#include <brrr/ops/jit/small_product.h>

namespace brrr::jit {

// One of the bodies in a launch.
struct ContractionPart {
  const Body* body;
  Contraction contraction;
  SmallSchedule schedule;
  // What is loaded before the wait for the previous kernel: factors, and all other inputs. With
  // both factors only what follows the product waits.
  bool prefetch_a = false, prefetch_b = false, prefetch_others = false;
};
// `is_final`: of each input, whether its elements are final before the previous kernel ends.
ContractionPart contraction_part(const BodySpec& spec, Contraction contraction,
                                 FactorAlignment alignment,
                                 const std::function<bool(int)>& is_final);

// The kernel's source, with the entry `contraction`. Of each part the entry takes outputs, inputs,
// scalars, Geometry of the results, SmallFactors, and PartOfGrid.
std::string contraction_source(std::span<const ContractionPart> parts);

}  // namespace brrr::jit
