// Runs kernels that write their outputs element by element: finds or makes the kernel that suits
// the operands' layouts and launches it. In the steady state nothing is allocated and nothing is
// locked.
#pragma once

#include <cstdint>

#include <brrr/ops/cuda/body_launch.h>
#include <brrr/ops/jit/body.h>
#include <brrr/tensor/tensor.h>
#include <brrr/tensor/tensor_impl.h>

namespace brrr::on_cuda {

struct Elementwise {
  static constexpr int kMostOperands = jit::Body::kMostOperands;
  static constexpr std::uint64_t kUnshared = ~std::uint64_t{0};

  // Packed: everything that `make` depends on. kUnshared: the kernel is found by its source.
  std::uint64_t what = kUnshared;
  int n_outputs = 0, n_operands = 0, n_scalars = 0;
  const TensorImpl* operands[kMostOperands];  // outputs of one shape, inputs that broadcast to it
  // The bits of each in its register type.
  std::uint64_t scalars[jit::Body::kMostNumbers];
  // The body; called once per kernel.
  jit::Body (*make)(const void* of) = nullptr;
  const void* of = nullptr;

  // All outputs first.
  void add_output(const Tensor& t) {
    operands[n_operands++] = TensorImpl::of(t);
    ++n_outputs;
  }
  void add_input(const Tensor& t) { operands[n_operands++] = TensorImpl::of(t); }
  void add_scalar(std::uint64_t bits) { scalars[n_scalars++] = bits; }
};

void run_elementwise(const Elementwise& work);

}  // namespace brrr::on_cuda
