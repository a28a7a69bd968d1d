// The verdict of brrr compare as text: regimes with their shares, scores of predictions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <brrr/measure/compare.h>
#include <brrr/measure/html_report.h>

namespace brrr::measure {

// How the parts of a step's time are shown, in this order: letter and color of bars on a terminal,
// the name in their legend, the name in sentences and in plots, the color in plots. name_of(regime)
// is the name in tables and documents.
struct ShownShare {
  Regime regime;
  char letter;
  const char *color, *short_name, *name;
  std::size_t plot_color;
};
inline constexpr ShownShare kShownShares[] = {
    {Regime::overhead, 'o', "\033[33m", "overhead", "overhead", 1},
    {Regime::bandwidth, '=', "\033[36m", "bandwidth", "bandwidth", 0},
    {Regime::compute, '#', "\033[32m", "compute", "compute", 2},
    {Regime::inefficient, '!', "\033[31m", "slow", "inefficient kernels", 3},
    {Regime::user, 'u', "\033[35m", "yours", "your own code", 4}};

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
