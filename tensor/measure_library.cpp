#include "brrr/tensor/measure_library.h"

#include <dlfcn.h>

#include <string>

#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

#ifdef BRRR_MEASURE_LIBRARY
// The two libraries are installed in one folder.
std::string path_of_library() {
  Dl_info self;
  const std::string own =
      dladdr(reinterpret_cast<void*>(&open_measure_library), &self) != 0 ? self.dli_fname : "";
  return own.substr(0, own.find_last_of('/') + 1) + BRRR_MEASURE_LIBRARY;  // npos + 1 is 0
}
#endif

}  // namespace

void open_measure_library() {
  const bool ranges = setting_of("BRRR_NVTX", {"0", "1"}) == "1";
  if ((!ranges && setting("BRRR_REPORT").empty()) || measure_library_is_open) return;
  const char* const variable = ranges ? "BRRR_NVTX" : "BRRR_REPORT";
#ifdef BRRR_MEASURE_LIBRARY
  const std::string path = path_of_library();
  if (!dlopen(path.c_str(), RTLD_NOW)) {
    const char* const why = dlerror();
    fail("[environment] expected the library brrr_measure for {}, got: {}", variable,
         why ? why : path);
  }
#else
  fail(
      "[environment] expected a program that links brrr_measure for {}, got one with brrr's static "
      "library alone",
      variable);
#endif
}

}  // namespace brrr
