// Launches of bodies with a contraction: in the tile of small products
// (ops/jit/render_contraction.h) or in tiles of Hopper's tensor cores (ops/jit/tile_epilogue.h).
#pragma once

#include <vector>

#include <brrr/ops/body_spec.h>
#include <brrr/tensor/tensor.h>

namespace brrr::on_cuda {

// Runs a body, and those that follow it (`next`), in one launch. `prefetchable`: see BodyOperands.
void run_contraction(const BodySpec& spec, const Tensor* const* inputs, const Tensor* outputs,
                     const std::vector<bool>& prefetchable);

}  // namespace brrr::on_cuda
