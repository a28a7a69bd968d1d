// The verdict of brrr compare as text: regimes with their shares, scores of predictions.
#pragma once

#include <string>

#include <brrr/measure/compare.h>
#include <brrr/measure/html_report.h>

namespace brrr::measure {

// How the parts of a step's time are shown on a terminal.
struct ShownShare {
  Regime regime;
  char letter;
  const char *color, *name;
};
inline constexpr ShownShare kShownShares[] = {{Regime::overhead, 'o', "\033[33m", "overhead"},
                                              {Regime::bandwidth, '=', "\033[36m", "bandwidth"},
                                              {Regime::compute, '#', "\033[32m", "compute"},
                                              {Regime::inefficient, '!', "\033[31m", "slow"},
                                              {Regime::user, 'u', "\033[35m", "yours"}};

// "oooooooo====######!!uu": overhead, bandwidth, compute, inefficient kernels and the user's code.
std::string bar_of(const Shares& shares, std::size_t width);
// After the table of times.
std::string verdict_text(const Comparison& comparison);
// Idle time by cause: "host 66 % (add (op) 30 %, matmul (op) 22 %), latency 5 % (...)".
std::string idle_text(const Occupancy& occupancy);
// The same for a report.
Section verdict_section(const Comparison& comparison);

}  // namespace brrr::measure
