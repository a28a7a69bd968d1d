// Skips a test that cannot run here: prints the reason and counts it as skipped.
#pragma once

#include <string>

namespace brrr::testing {

void skip(const std::string& why);

}  // namespace brrr::testing
