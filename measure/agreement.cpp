#include "brrr/measure/agreement.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace brrr::measure {

std::optional<std::size_t> first_difference(std::span<const double> a, std::span<const double> b) {
  const auto [i, j] = std::ranges::mismatch(a, b, [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  });
  if (i == a.end() && j == b.end()) return std::nullopt;
  return static_cast<std::size_t>(i - a.begin());
}

std::optional<std::size_t> first_not_finite(std::span<const double> values) {
  const auto found = std::ranges::find_if_not(values, [](double x) { return std::isfinite(x); });
  if (found == values.end()) return std::nullopt;
  return static_cast<std::size_t>(found - values.begin());
}

Agreement agreement_of(std::span<const double> wanted, std::span<const double> got, double bound) {
  Agreement result;
  result.bound = bound;
  result.broken_at = first_difference(wanted, got);
  double scale = 0;
  for (const double loss : wanted) scale = std::max(scale, std::abs(loss));
  if (scale == 0) scale = 1;
  std::optional<std::size_t> beyond;
  for (std::size_t i = 0; i < std::min(wanted.size(), got.size()); ++i) {
    const double difference = std::abs(got[i] - wanted[i]) / scale;
    if (!(difference <= bound) && !beyond) beyond = i;  // true for NaN as well
    result.largest = std::max(result.largest, difference);
  }
  if (bound == 0 || wanted.size() != got.size()) return result;
  result.broken_at = beyond;
  return result;
}

double loss_bound(Device device, DType dtype, Mode mode, Rounding rounding) {
  if (mode != Mode::fused) return 0;
  const bool rounds_alike = rounding == Rounding::eager || dtype == f32;
  if (device.is_cpu() && rounds_alike) return 0;
  return dtype == f32 ? 1e-3 : 2e-2;
}

}  // namespace brrr::measure
