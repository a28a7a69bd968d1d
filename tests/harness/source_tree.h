// Files of the tree that tests read: golden data, documents, sources. Only source_tree.cpp is
// compiled with the tree's path, so that all other objects are equal in every checkout.
#pragma once

#include <string>

namespace brrr::testing {

// The absolute path of a file or folder named from the root of the tree.
std::string source_path(const std::string& path);

}  // namespace brrr::testing
