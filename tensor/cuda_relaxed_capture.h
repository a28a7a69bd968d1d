// Lets the calling thread allocate, load modules and wait for other streams while one of its
// streams is under capture. The driver refuses such calls, which could belong to the capture, until
// the thread asks for the relaxed mode.
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
