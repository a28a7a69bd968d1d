// What the executables of tests do before the first test: each defines it in a file of its own.
#pragma once

#include <string>

namespace brrr::testing {

// Why no test of this executable can run here; empty where they can.
std::string prepare_suite();

}  // namespace brrr::testing
