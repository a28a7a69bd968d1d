// Runs kernels that write their outputs element by element: finds or makes the kernel that suits
// the operands' layouts and launches it. In the steady state nothing is allocated and nothing is
// locked.
#pragma once

#include <cstdint>

#include <brrr/dispatch/call.h>
#include <brrr/ops/jit/body.h>
#include <brrr/tensor/cuda_runtime.h>
#include <brrr/tensor/tensor.h>
#include <brrr/tensor/tensor_impl.h>

namespace brrr::on_cuda {

struct Elementwise {
  static constexpr int kMostOutputs = 3, kMostInputs = 11, kMostScalars = kMaxAttrs;

  std::uint64_t what = 0;  // packed: everything that `make` depends on
  int n_outputs = 1, n_inputs = 0, n_scalars = 0;
  const TensorImpl* outputs[kMostOutputs];  // of one shape
  const TensorImpl* inputs[kMostInputs];    // shapes broadcast to the outputs'
  std::uint64_t scalars[kMostScalars];      // the bits of each in its register type
  // What is computed; asked for once per kernel.
  jit::Body (*make)(const void* of) = nullptr;
  const void* of = nullptr;
};

void run_elementwise(const Elementwise& work);

}  // namespace brrr::on_cuda
