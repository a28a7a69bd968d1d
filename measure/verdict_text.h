// The verdict of brrr compare as text: regimes with their shares, scores of predictions.
#pragma once

#include <string>
#include <vector>

#include <brrr/measure/compare.h>
#include <brrr/measure/html_report.h>

namespace brrr::measure {

// How the parts of a step's time are shown on a terminal: letter and color of its bars, the name in
// their legend, and the name in sentences.
struct ShownShare {
  Regime regime;
  char letter;
  const char *color, *short_name, *name;
};
inline constexpr ShownShare kShownShares[] = {
    {Regime::overhead, 'o', "\033[33m", "overhead", "overhead"},
    {Regime::bandwidth, '=', "\033[36m", "bandwidth", "bandwidth"},
    {Regime::compute, '#', "\033[32m", "compute", "compute"},
    {Regime::inefficient, '!', "\033[31m", "slow", "inefficient kernels"},
    {Regime::user, 'u', "\033[35m", "yours", "your own code"}};

// "oooooooo====######!!uu": overhead, bandwidth, compute, inefficient kernels and the user's code.
std::string bar_of(const Shares& shares, std::size_t width);
// The problems or doubts of all modes, each once, with the range of its numbers and the modes that
// have it: "on eager, graph: samples of the step spread by 11 to 19 %". Those of most modes first.
std::vector<std::string> reasons_of(const Comparison& comparison,
                                    std::vector<std::string> Diagnosis::*which);
// After the table of times.
std::string verdict_text(const Comparison& comparison);
// Idle time by cause: "host 66 % (add (op) 30 %, matmul (op) 22 %), latency 5 % (...)".
std::string idle_text(const Occupancy& occupancy);
// The same for a report.
Section verdict_section(const Comparison& comparison);

}  // namespace brrr::measure
