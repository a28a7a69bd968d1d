#include "brrr/measure/nvtx.h"

#include <cstdlib>
#include <cstring>
#include <string>

#if __has_include(<nvtx3/nvToolsExt.h>)  // of the toolkit's headers
#include <nvtx3/nvToolsExt.h>

namespace brrr::measure {

bool has_nvtx() { return true; }
void push_nvtx_range(const char* name) { nvtxRangePushA(name); }
void pop_nvtx_range() { nvtxRangePop(); }

}  // namespace brrr::measure

#else

namespace brrr::measure {

bool has_nvtx() { return false; }
void push_nvtx_range(const char*) {}
void pop_nvtx_range() {}

}  // namespace brrr::measure

#endif

namespace brrr::measure {

bool wants_nvtx() {
  static const bool wanted = [] {
    const char* const value = std::getenv("BRRR_NVTX");
    return value && std::strcmp(value, "1") == 0;
  }();
  return wanted;
}

NvtxStep::NvtxStep(std::int64_t number) {
  if (pushed_) push_nvtx_range(("step " + std::to_string(number)).c_str());
}

}  // namespace brrr::measure
