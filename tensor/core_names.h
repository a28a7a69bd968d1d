// Included before every source of the library, its tests and its program (-include,
// cmake/options.cmake): there, names of brrr::core are found without their namespace. Programs that
// include brrr.h do not have it, so public headers write core::.
#pragma once

namespace brrr {
namespace core {}
using namespace core;
}  // namespace brrr
