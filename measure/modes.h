// A step in several modes: what was predicted before any was timed, and what was measured.
#pragma once

#include <span>
#include <string>

#include <brrr/measure/diagnose.h>

namespace brrr::measure {

struct ComparedMode {
  std::string name;          // "fused min_cut"
  core::StepTime predicted;  // before any mode was timed; this one is scored
  Timing measured;
  Diagnosis diagnosis;

  // The relative error of the prediction: -0.1 is 10 % too short.
  double error() const;
};

// Whether a step is faster than another by more than 5 %.
bool is_faster(const Timing& step, const Timing& other);

// How many times as fast `step` is as `slow`. What saves more than all that is not the user's own
// code is a change of that code's time, which no mode causes. 1: it is not faster by more than 5 %.
double gain_over(const Timing& slow, const Diagnosis& of_slow, const Timing& step);

// Whether every two modes have the predicted order. Two that differ by less than 5 %, or by less
// than their samples spread, have none.
bool order_is_right(std::span<const ComparedMode> modes);

// One sentence: the regime of the first mode, the predicted and measured time of the fastest mode,
// and advice. Empty if the first mode's diagnosis has no regime.
std::string verdict_on(std::span<const ComparedMode> modes);

}  // namespace brrr::measure
