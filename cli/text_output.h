// Results for people: short lists and aligned tables.
#pragma once

#include <string>

#include "cli/compare.h"
#include "cli/train.h"
#include <brrr/measure/bench.h>
#include <brrr/measure/machine.h>

namespace brrr::cli {

std::string to_text(const measure::Machine& machine);
std::string to_text(const measure::Results& results, const measure::Machine& machine);
std::string to_text(const TrainResult& result);
std::string to_text(const Comparison& comparison);

}  // namespace brrr::cli
