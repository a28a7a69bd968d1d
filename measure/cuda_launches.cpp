// Launches, counted where they are made: in the table of CUDA calls.
#include "measure/step_cost.h"
#include "tensor/cuda_api.h"

namespace brrr::measure {

std::int64_t cuda_launches(const std::function<void()>& work) {
  struct Counting {
    Counting() { cu::count_calls(true); }
    ~Counting() { cu::count_calls(false); }
  } counting;
  work();
  return cu::call_count("cuLaunchKernel") + cu::call_count("cuLaunchKernelEx") +
         cu::call_count("cublasLtMatmul");
}

}  // namespace brrr::measure
