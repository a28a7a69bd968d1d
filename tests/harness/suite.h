// Setup before the first test; each test executable defines it in its suite.cpp.
#pragma once

#include <string>

namespace brrr::testing {

// Why no test of this executable can run here; empty where they can.
std::string prepare_suite();

}  // namespace brrr::testing
