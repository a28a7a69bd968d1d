// Results as JSON text: one document, ending in a line break.
#pragma once

#include <string>

#include "measure/bench.h"
#include "measure/machine.h"

namespace brrr::cli {

std::string to_json(const measure::Machine& machine);
// {"results": [{"name", "device", "value", "unit", "limit", "ratio", …}], "machine": {…}}
std::string to_json(const measure::Results& results, const measure::Machine& machine);

}  // namespace brrr::cli
