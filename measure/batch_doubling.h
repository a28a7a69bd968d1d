// A cross-check of a verdict: the same step at twice the batch.
//
// An overhead-bound step takes as long as before, a step bound by bandwidth or compute longer. How
// much longer is computed from the costs of both steps: with a batch below the width of a model
// most bytes are weights, so twice the batch hardly moves more bytes (the third footnote of "Making
// Deep Learning Go Brrrr From First Principles"). In that case a constant time excludes compute,
// but not bandwidth.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/diagnose.h>

namespace brrr::measure {

enum class Doubling : std::uint8_t {
  agrees,     // the measured ratio fits the verdict's regime and no other
  disagrees,  // it fits other regimes, but neither the verdict's regime nor its shares
  undecided,  // it fits several regimes or none, or a timing is disturbed
};
inline constexpr std::array<const char*, 3> kDoublings = {"agrees", "disagrees", "undecided"};

struct BatchDoubling {
  Doubling judgement = Doubling::undecided;
  double ratio = 0;  // measured: the time at twice the batch over that at the batch
  // The ratio if one regime took the whole step: overhead, bandwidth, compute.
  std::array<double, 3> expected{};
  std::vector<Regime> fits;             // regimes whose expected ratio matches the measured one
  std::optional<double> expected_here;  // by the verdict's shares; none without a verdict
  // What differs from the verdict where it disagrees: "at 88.1 GFLOP/s in place of 70.6".
  std::string difference = {};
  std::string text;  // in a sentence
};

BatchDoubling judge_doubling(const Diagnosis& diagnosis, const StepCost& once,
                             const StepCost& twice, const Timing& time_once,
                             const Timing& time_twice);

// "undecided between bandwidth and compute"
std::string judgement_text(const BatchDoubling& doubling);
// Adds a caveat where twice the batch disagrees with the verdict, with the difference.
void qualify(Diagnosis& diagnosis, const BatchDoubling& doubling);

// Times `step` and `doubled` alternately. `once`, `twice`: their costs.
BatchDoubling double_batch(Device device, const Diagnosis& diagnosis,
                           const std::function<void()>& step, const StepCost& once,
                           const std::function<void()>& doubled, const StepCost& twice,
                           const Sampling& sampling = {});

}  // namespace brrr::measure
