// Scope in which the calling thread may allocate, load modules and wait for other streams while one
// of its streams is being captured. By default the driver refuses these calls during a capture.
#pragma once

#include <brrr/tensor/cuda_api.h>

namespace brrr::cu {

class RelaxedCapture {
 public:
  explicit RelaxedCapture(bool needed = true) : needed_(needed) {
    if (needed_) BRRR_CUDA(cuThreadExchangeStreamCaptureMode, &mode_);
  }
  ~RelaxedCapture() {
    if (needed_) (void)BRRR_CUDA_TRY(cuThreadExchangeStreamCaptureMode, &mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  bool needed_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace brrr::cu
