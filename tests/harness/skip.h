// A test that cannot run here says why and returns: a line on the screen, and one in the count of
// the skipped.
#pragma once

#include <string>

namespace brrr::testing {

void skip(const std::string& why);

}  // namespace brrr::testing
