// brrr compare: the same training in all modes, in one process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/train.h"
#include <brrr/measure/agreement.h>
#include <brrr/measure/batch_doubling.h>
#include <brrr/measure/diagnose.h>
#include <brrr/measure/modes.h>
#include <brrr/measure/timeline.h>
#include <brrr/measure/timing.h>

namespace brrr::cli {

// The results of one mode, under one policy of rematerialization.
struct Side : TrainResult {
  measure::Agreement agreement;
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

struct CompareOptions {
  bool double_batch = false;  // times each mode at twice the batch as well
  bool timeline = false;      // records timelines of long steps too
};

// Uses the model, the number of steps and the timing budget of `options`.
Comparison compare(const TrainOptions& options, const CompareOptions& further,
                   const std::function<void(const std::string& what)>& progress);

}  // namespace brrr::cli
