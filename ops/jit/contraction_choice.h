// Which contractions have a generated kernel that is faster than the kernels of their calls, by
// shapes, strides, types and the device's numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <brrr/ops/body_spec.h>
#include <brrr/ops/jit/contraction.h>

namespace brrr::jit {

// What the choice of a product's kernel depends on beside its operands.
struct MatmulTarget {
  int multiprocessors = 1;
  int architecture = 0;  // 90 for sm_90
  bool tf32 = false;     // f32 factors may be rounded to TF32

  bool has_tiles() const { return architecture == 90; }
};

// TF32 products of more FLOPs do not take A in registers: the library with a copied factor loads
// less from the L2, and the copy is short beside the product.
constexpr std::int64_t kMostFlopsOfRegisters = std::int64_t{9} << 29;

// A body's product as its kernel computes it: tiles take TF32 factors with elements adjacent along
// m as A only, so the factors of x w are swapped where w has rows of adjacent elements.
std::optional<Contraction> contraction_for(const BodyStrides& body, const MatmulTarget& target);

// As the functions of ops/body_kernel.h, of bodies with a contraction.
bool is_generated(const BodyStrides& body, bool aligned, const MatmulTarget& target);
bool is_better_alone(const BodyStrides& body, bool aligned, const MatmulTarget& target);
double share_of_device(const BodyStrides& body, const MatmulTarget& target);
bool are_better_together(const BodyStrides& one, const BodyStrides& other,
                         const MatmulTarget& target);

}  // namespace brrr::jit
