// Comparisons of steps made by hand, one for each regime, for tests of what is printed of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "brrr/measure/compare.h"

namespace brrr::testing {

// Named as files are: "overhead", "own_code".
std::vector<std::pair<std::string, measure::Comparison>> prepared_comparisons();

}  // namespace brrr::testing
