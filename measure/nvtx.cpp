#include "brrr/measure/nvtx.h"

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
