// The verdict of brrr compare as text: regimes with their shares, scores of predictions.
#pragma once

#include <string>

#include "cli/compare.h"

namespace brrr::cli {

// "oooooooo====########": a character for each twentieth of the step.
std::string bar_of(const measure::Shares& shares);
// After the table of times.
std::string verdict_text(const Comparison& comparison);

}  // namespace brrr::cli
