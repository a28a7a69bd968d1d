// Texts that are compared with files of the tree. BRRR_WRITE_GOLDEN=1 writes the files instead.
#pragma once

#include <set>
#include <string>

namespace brrr::testing {

// Compares a text with tests/golden/`name`.txt. `tag`: of the tests that write it again.
void check_golden(const std::string& name, const std::string& text, const std::string& tag);
// The names of the files in a folder of tests/golden.
std::set<std::string> golden_files_in(const std::string& folder);

}  // namespace brrr::testing
