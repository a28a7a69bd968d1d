// A cross-check of a verdict: the same step at twice the batch.
//
// An overhead-bound step takes as long, one bound by bandwidth or compute longer. How much longer
// is computed from both steps' costs: while the batch is below the width of a model, most bytes are
// weights, so that twice the batch hardly moves more (the third footnote of "Making Deep Learning
// Go Brrrr From First Principles"). A flat time then tells overhead from compute, but not from
// bandwidth.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/diagnose.h>

namespace brrr::measure {

enum class Doubling : std::uint8_t {
  agrees,     // the measured ratio is what the verdict's regime expects, and no other does
  disagrees,  // other regimes expect it; that of the verdict does not, nor do its shares
  undecided,  // several regimes expect it or none does, or a timing is disturbed
};
inline constexpr std::array<const char*, 3> kDoublings = {"agrees", "disagrees", "undecided"};

struct BatchDoubling {
  Doubling judgement = Doubling::undecided;
  double ratio = 0;  // measured: the time at twice the batch over that at the batch
  // What it would be if one regime had the whole step, by overhead, bandwidth, compute.
  std::array<double, 3> expected{};
  std::vector<Regime> fits;             // those whose expectation the measured ratio is
  std::optional<double> expected_here;  // by the shares of the verdict; none without one
  std::string text;                     // in a sentence
};

BatchDoubling judge_doubling(const Diagnosis& diagnosis, const StepCost& once,
                             const StepCost& twice, const Timing& time_once,
                             const Timing& time_twice);

// "undecided between bandwidth and compute"
std::string judgement_text(const BatchDoubling& doubling);
// Adds a caveat where twice the batch disagrees with the verdict.
void qualify(Diagnosis& diagnosis, const BatchDoubling& doubling);

// Times `step` and `doubled` alternately. `once`, `twice`: their costs.
BatchDoubling double_batch(Device device, const Diagnosis& diagnosis,
                           const std::function<void()>& step, const StepCost& once,
                           const std::function<void()>& doubled, const StepCost& twice,
                           const Sampling& sampling = {});

}  // namespace brrr::measure
