// Small programs that are run fused and eager (fused_programs.h), and those with matrix products.
#pragma once

#include <functional>
#include <vector>

#include <brrr/tensor/dims.h>

#include "tests/harness/compile_check.h"

namespace brrr::test {

struct Program {
  using Function = std::function<Tensors(const Tensors&)>;

  const char* name;
  std::vector<Dims> arguments;
  int kernels;  // of the fused step
  Function function;
  bool exact = true;        // eager's bits: no sums in another order
  int more_on_cuda = 0;     // kernels
  double f32_error = 2e-6;  // of an inexact program
  int more_on_cpu = 0;      // kernels
};

// Products with what precedes and follows them, where the device has generated products: one kernel
// each.
extern const std::vector<Program> kProducts;
// Products too large for the small kernel, of any type and of halves only.
extern const std::vector<Program> kTileProducts, kHalfTileProducts;

}  // namespace brrr::test
