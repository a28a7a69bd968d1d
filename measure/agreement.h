// How losses of a mode compare with eager's.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include <brrr/graph/compile.h>
#include <brrr/tensor/device.h>
#include <brrr/tensor/dtype.h>

namespace brrr::measure {

struct Agreement {
  double bound = 0;    // the largest difference that is allowed; 0: they have the same bits
  double largest = 0;  // the largest difference found
  std::optional<std::size_t> broken_at = {};  // the first step that differs by more

  bool is_of_bits() const { return bound == 0; }
};

// The first index at which two lists differ bitwise, or one has ended.
std::optional<std::size_t> first_difference(std::span<const double> a, std::span<const double> b);

// The index of the first value that is not finite.
std::optional<std::size_t> first_not_finite(std::span<const double> values);

// `bound` 0: the bits must be equal. Differences are relative to the largest of the wanted losses.
Agreement agreement_of(std::span<const double> wanted, std::span<const double> got, double bound);

// The tolerance of a mode's losses: fused steps on CUDA reduce in another order than eager ones,
// and Rounding::fast rounds less often.
double loss_bound(Device device, DType dtype, Mode mode, Rounding rounding);

}  // namespace brrr::measure
