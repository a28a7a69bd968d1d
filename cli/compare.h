// brrr compare: the same training in all modes, in one process.
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
#include <brrr/measure/batch_doubling.h>
#include <brrr/measure/diagnose.h>
#include <brrr/measure/modes.h>
#include <brrr/measure/timeline.h>
#include <brrr/measure/timing.h>

namespace brrr::cli {

// How losses compare with eager's.
struct Agreement {
  double bound = 0;    // the largest difference that is allowed; 0: they have the same bits
  double largest = 0;  // the largest difference found
  std::optional<std::size_t> broken_at = {};  // the first step that differs by more

  bool is_of_bits() const { return bound == 0; }
};

// The results of one mode, under one policy of rematerialization.
struct Side : TrainResult {
  Agreement agreement;
  // On CUDA:
  std::optional<measure::Timing> host;    // until the call of a step returns
  std::optional<measure::Timing> device;  // device time of a step that was queued in advance
  measure::Diagnosis diagnosis;
  std::optional<measure::BatchDoubling> doubling;  // if asked for
  std::optional<measure::Timeline> timeline;       // recorded after everything was timed
  // Predicted costs of a compiled step:
  std::vector<LaunchCost> launches;
  // Measured times of launches, where the timeline has them:
  std::vector<std::optional<double>> launch_seconds;
  std::optional<LiveBytes> live;  // under a policy of rematerialization

  // The fraction of a step in which the device waits for the host.
  std::optional<double> idle() const {
    if (!device || !step) return std::nullopt;
    return std::max(0.0, 1 - device->median / step->median);
  }
};

// "fused", "fused full".
std::string name_of(const Side& side);

struct Comparison {
  std::vector<Side> sides;                // eager first
  std::optional<std::size_t> divergence;  // the first step with a loss that is not finite

  // The first mode whose losses are not eager's; null: there is none.
  const Side* disagreement() const {
    const auto found = std::ranges::find_if(
        sides, [](const Side& side) { return side.agreement.broken_at.has_value(); });
    return found == sides.end() ? nullptr : &*found;
  }
  double speed_up(const Side& side) const { return sides.front().step->median / side.step->median; }
};

std::vector<measure::ComparedMode> modes_of(const Comparison& comparison);

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

// `bound` 0: the bits must be equal. Differences are relative to the largest of the wanted losses.
inline Agreement agreement_of(std::span<const double> wanted, std::span<const double> got,
                              double bound) {
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

// The tolerance of a mode's losses: fused steps on CUDA reduce in another order than eager ones,
// and Rounding::fast rounds less often.
inline double loss_bound(const TrainingOptions& options) {
  if (options.mode != Mode::fused) return 0;
  const bool rounds_alike = options.rounding == Rounding::eager || options.toy.dtype == f32;
  if (options.toy.device.is_cpu() && rounds_alike) return 0;
  return options.toy.dtype == f32 ? 1e-3 : 2e-2;
}

struct CompareOptions {
  bool double_batch = false;  // times each mode at twice the batch as well
  bool timeline = false;      // records timelines of long steps too
};

// Uses the model, the number of steps and the timing budget of `options`.
Comparison compare(const TrainOptions& options, const CompareOptions& further,
                   const std::function<void(const std::string& what)>& progress);

}  // namespace brrr::cli
