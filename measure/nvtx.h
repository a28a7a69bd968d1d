// Ranges of NVTX, which Nsight shows: a tool that is attached to the process sees them, otherwise
// a range costs a test. Nothing is linked: the header opens the tool that the environment names.
#pragma once

namespace brrr::measure {

// Whether brrr was built with the header; else ranges do nothing.
bool has_nvtx();
void push_nvtx_range(const char* name);
void pop_nvtx_range();

}  // namespace brrr::measure
