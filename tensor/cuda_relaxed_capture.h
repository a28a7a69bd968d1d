// Lets the calling thread allocate, load and wait on other streams while one of its streams is
// being captured.
#pragma once

#include "tensor/cuda_api.h"

namespace brrr::cu {

class RelaxedCapture {
 public:
  RelaxedCapture() { BRRR_CUDA(cuThreadExchangeStreamCaptureMode, &mode_); }
  ~RelaxedCapture() { (void)BRRR_CUDA_TRY(cuThreadExchangeStreamCaptureMode, &mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace brrr::cu
