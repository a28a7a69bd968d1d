// The table through which brrr calls CUDA: driver, NVRTC, cuBLASLt, CUPTI. brrr links none of these
// libraries: each is opened at the first call into it, independently of the others, so NVRTC works
// without a driver. Every call is checked in one place, and calls can be counted. Tests make the
// k-th call of any name fail, or install a fake driver (cuda_testing.h).
//
// - BRRR_CUDA(cuMemsetD8Async, pointer, 0, bytes, stream) throws CudaError when the call fails;
// - code = BRRR_CUDA_TRY(cuStreamQuery, stream) leaves the code to the caller.
#pragma once

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>
#if __has_include(<cupti.h>)  // packages of the toolkit's headers may lack it
#include <cupti.h>
#define BRRR_HAS_CUPTI 1
#else
#define BRRR_HAS_CUPTI 0
#endif

#include <atomic>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace brrr::cu {

// Names as in the headers, whose macros map some to a version (cuMemAlloc to cuMemAlloc_v2): used
// as an identifier a name is mapped, stringized with # it is not.
// clang-format off
#define BRRR_DRIVER_CALLS(X)                                                                              \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                                   \
  X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceTotalMem)       \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent)                             \
  X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemAllocHost) X(cuMemFreeHost) X(cuPointerGetAttributes) \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpyAsync) X(cuMemsetD8Async)      \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent)       \
  X(cuLaunchHostFunc) X(cuStreamIsCapturing) X(cuStreamBeginCapture) X(cuStreamEndCapture)                \
  X(cuThreadExchangeStreamCaptureMode) X(cuEventCreate) X(cuEventRecord) X(cuEventSynchronize)            \
  X(cuEventQuery) X(cuEventElapsedTime) X(cuEventDestroy)                                                 \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncGetAttribute) X(cuFuncSetAttribute) \
  X(cuFuncGetName) X(cuStreamGetCaptureInfo)                                                              \
  X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuTensorMapEncodeTiled)                                         \
  X(cuGraphDestroy) X(cuGraphGetNodes) X(cuGraphKernelNodeGetParams) X(cuGraphKernelNodeGetAttribute)     \
  X(cuGraphInstantiate) X(cuGraphExecKernelNodeSetParams) X(cuGraphExecDestroy) X(cuGraphUpload) X(cuGraphLaunch)

#define BRRR_NVRTC_CALLS(X)                                                                               \
  X(nvrtcVersion) X(nvrtcGetErrorString) X(nvrtcCreateProgram) X(nvrtcDestroyProgram)                     \
  X(nvrtcCompileProgram) X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog)                                  \
  X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN)

#define BRRR_CUBLASLT_CALLS(X)                                                                            \
  X(cublasLtGetVersion) X(cublasLtGetStatusName) X(cublasLtGetStatusString)                               \
  X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtMatmul)                                                  \
  X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)              \
  X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute)        \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                                    \
  X(cublasLtMatmulPreferenceSetAttribute)                                                                 \
  X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoCheck)

#if BRRR_HAS_CUPTI
#define BRRR_CUPTI_CALLS(X)                                                                               \
  X(cuptiGetVersion) X(cuptiGetResultString) X(cuptiSubscribe) X(cuptiUnsubscribe)                        \
  X(cuptiActivityRegisterCallbacks) X(cuptiActivityRegisterTimestampCallback) X(cuptiGetTimestamp)        \
  X(cuptiActivityEnable) X(cuptiActivityDisable) X(cuptiActivityFlushAll)                                 \
  X(cuptiActivityGetNextRecord) X(cuptiActivityGetNumDroppedRecords) X(cuptiGetCallbackName)              \
  X(cuptiActivityPushExternalCorrelationId) X(cuptiActivityPopExternalCorrelationId)
#else
#define BRRR_CUPTI_CALLS(X)
#endif

// To add a library, add a list above, its name below and in Library, and its files to cuda_api.cpp.
#define BRRR_CUDA_CALLS(X) BRRR_DRIVER_CALLS(X) BRRR_NVRTC_CALLS(X) BRRR_CUBLASLT_CALLS(X) BRRR_CUPTI_CALLS(X)
// clang-format on

enum class Library { driver, nvrtc, cublaslt, cupti };

enum class Fn : int {
#define X(name) k_##name,
  BRRR_CUDA_CALLS(X)
#undef X
      count
};
inline constexpr int kFns = static_cast<int>(Fn::count);

// One function pointer for each call. Until its library is open, an entry opens the library and
// forwards the call; an entry for a function that the library lacks throws.
struct Table {
#define X(name) decltype(&::name) name = nullptr;
  BRRR_CUDA_CALLS(X)
#undef X
};

extern std::atomic<const Table*> active_table;

inline const Table& table() { return *active_table.load(std::memory_order_acquire); }

// Throws "[op] cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory". With `about`, the
// object of the call: "[op] cuModuleGetFunction failed for "add_f32": ...".
[[noreturn]] void throw_failed(Fn call, int code, std::string_view about = {});

template <Fn F, class Code>
inline void check(Code code) {
  if (static_cast<int>(code) != 0) [[unlikely]]
    throw_failed(F, static_cast<int>(code));
}

#define BRRR_CUDA(fn, ...) \
  ::brrr::cu::check<::brrr::cu::Fn::k_##fn>(::brrr::cu::table().fn(__VA_ARGS__))
#define BRRR_CUDA_TRY(fn, ...) ::brrr::cu::table().fn(__VA_ARGS__)

std::string_view name_of(Fn call);
// "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
std::string describe(Library library, int code);

// Opens a library if it is not open. Returns one line that says why it cannot be used; empty when
// it can.
std::string open_library(Library library);
// The same for the driver. It must also be new enough, initialize, and have a device.
std::string driver_problem();
// The CUDA version that the driver supports, and NVRTC's own, as major * 1000 + minor * 10; 0 if
// there is none.
int driver_version();
int nvrtc_version();

inline constexpr int kOldestDriver = 12040;

// Counts calls from now on; `call_counts` has every name called since, `call_count` one.
void count_calls(bool on);
std::vector<std::pair<std::string_view, long>> call_counts();
long call_count(std::string_view name);

}  // namespace brrr::cu
