// Which contractions have a generated kernel that is faster than the kernels of their calls, by
// shapes, strides, types and the device's numbers.
#pragma once

#include <span>

#include <brrr/ops/body_spec.h>

namespace brrr::jit {

// What the choice of a product's kernel depends on beside its operands.
struct MatmulTarget {
  int multiprocessors = 1;
  int architecture = 0;  // 90 for sm_90
  bool tf32 = false;     // f32 factors may be rounded to TF32
};

// As the functions of ops/body_kernel.h, of bodies with a contraction.
bool is_generated(const BodyStrides& body, bool aligned, const MatmulTarget& target);
bool is_better_alone(const BodyStrides& body, bool aligned, const MatmulTarget& target);
double share_of_device(const BodyStrides& body, const MatmulTarget& target);
bool are_better_together(const BodyStrides& one, const BodyStrides& other,
                         const MatmulTarget& target);

}  // namespace brrr::jit
