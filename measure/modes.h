// A step in several modes: what was predicted before each was timed, and what was measured.
#pragma once

#include <span>
#include <string>

#include <brrr/measure/diagnose.h>

namespace brrr::measure {

struct ComparedMode {
  std::string name;  // "fused mincut"
  StepTime predicted;
  Timing measured;
  Diagnosis diagnosis;

  // Of the prediction, relative to what was measured: -0.1 is 10 % too short.
  double error() const;
};

// Whether a step is faster than another by more than 5 %.
bool is_faster(const Timing& step, const Timing& other);

// Whether every two modes have the predicted order. Two that differ by less than 5 %, or by less
// than their samples spread, have none.
bool order_is_right(std::span<const ComparedMode> modes);

// In a sentence: the regime of the first mode, the fastest one as predicted and measured, and what
// to do next. Empty where the first mode's diagnosis has no regime.
std::string verdict_on(std::span<const ComparedMode> modes);

}  // namespace brrr::measure
