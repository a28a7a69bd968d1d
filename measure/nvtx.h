// NVTX ranges, which Nsight shows. Without an attached tool a range costs a test. No library is
// linked: NVTX's header opens the tool that the environment names.
#pragma once

#include <cstdint>

namespace brrr::measure {

// Whether brrr was built with the header; else ranges do nothing.
bool has_nvtx();
void push_nvtx_range(const char* name);
void pop_nvtx_range();
// Whether the environment asks for ranges: BRRR_NVTX=1.
bool wants_nvtx();

// Scope with the range "step 5", if ranges are enabled.
class NvtxStep {
 public:
  explicit NvtxStep(std::int64_t number);
  ~NvtxStep() {
    if (pushed_) pop_nvtx_range();
  }
  NvtxStep(const NvtxStep&) = delete;
  NvtxStep& operator=(const NvtxStep&) = delete;

 private:
  bool pushed_ = wants_nvtx();
};

}  // namespace brrr::measure
