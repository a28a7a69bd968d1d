// brrr compare: the same training eager and in graph mode, in one process.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/train.h"
#include <brrr/measure/timing.h>

namespace brrr::cli {

// The results of one mode.
struct Side : TrainResult {
  // On CUDA:
  std::optional<measure::Timing> host;    // until the call of a step returns
  std::optional<measure::Timing> device;  // of a step that is queued before it starts

  // The fraction of a step in which the device waits for the host.
  std::optional<double> idle() const {
    if (!device || !step) return std::nullopt;
    return std::max(0.0, 1 - device->median / step->median);
  }
};

struct Comparison {
  std::vector<Side> sides;                  // eager first
  std::optional<std::size_t> disagreement;  // the first step whose losses differ
  std::optional<std::size_t> divergence;    // the first step with a loss that is not finite

  double speed_up(const Side& side) const { return sides.front().step->median / side.step->median; }
};

// The first index at which two lists differ bitwise, or one has ended.
inline std::optional<std::size_t> first_difference(std::span<const double> a,
                                                   std::span<const double> b) {
  const auto [i, j] = std::ranges::mismatch(a, b, [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  });
  if (i == a.end() && j == b.end()) return std::nullopt;
  return static_cast<std::size_t>(i - a.begin());
}

// The index of the first value that is not finite.
inline std::optional<std::size_t> first_not_finite(std::span<const double> values) {
  const auto found = std::ranges::find_if_not(values, [](double x) { return std::isfinite(x); });
  if (found == values.end()) return std::nullopt;
  return static_cast<std::size_t>(found - values.begin());
}

// Uses the model, the number of steps and the timing budget of `options`.
Comparison compare(const TrainOptions& options,
                   const std::function<void(const std::string& what)>& progress);

}  // namespace brrr::cli
