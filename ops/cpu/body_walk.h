// How a CPU kernel walks a body's space: what its source and the choices of fusion depend on.
#pragma once

#include <span>

#include <brrr/ops/body_spec.h>
#include <brrr/ops/jit/cpu_kernel.h>
#include <brrr/tensor/strided_space.h>

namespace brrr::on_cpu {

struct BodyWalk {
  StridedSpace space, reduced;
  jit::CpuOrder order;
  jit::CpuWalk walk;
};
// `strides`: of inputs, then outputs, as for space_of.
BodyWalk walk_of(const BodySpec& spec, std::span<const Dims> strides);

}  // namespace brrr::on_cpu
