// Checks gradients against differences of the function itself, in f64.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr {

namespace core {
using Differentiable = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;
}

struct GradcheckOptions {
  double step = 1e-6;  // of the central differences
  // The largest allowed difference is atol + 0.001 times the larger of the two derivatives.
  double atol = 1e-5;
  // Also checks the gradients' own gradients.
  bool second_order = false;
  // One random direction in place of every element: for large inputs and long programs.
  bool directional = false;
  std::uint64_t seed = 0;
};

struct GradcheckResult {
  bool passed = true;
  double worst = 0;  // difference, of what was compared
  std::string message;

  explicit operator bool() const { return passed; }
};

// Inputs that require a gradient are f64 leaves of distinct memory; the others are constants. fn
// must be deterministic. Every call of it draws the same random numbers.
GradcheckResult gradcheck(const core::Differentiable& fn, const std::vector<Tensor>& inputs,
                          GradcheckOptions options = {});
GradcheckResult gradcheck(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input,
                          GradcheckOptions options = {});

}  // namespace brrr
