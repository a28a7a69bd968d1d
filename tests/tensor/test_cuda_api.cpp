// The table of CUDA calls: errors for missing libraries, checked calls, injected faults, counters.
#include "brrr/tensor/cuda_api.h"
#include "brrr/tensor/cuda_testing.h"

#include "brrr/tensor/error.h"
#include "brrr/tensor/runtime.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"

using namespace brrr;
using Catch::Contains;
using testing::FakeCuda;

TEST_CASE("without a driver one clear line says so", "[cuda_api]") {
  if (cu::open_library(cu::Library::driver).empty()) return;  // there is one
  CHECK(cu::open_library(cu::Library::driver) ==
        "libcuda.so.1 not found: is an NVIDIA driver installed?");
  CHECK_FALSE(cuda_is_available());
  CHECK(cuda_runtime().why_none() == "libcuda.so.1 not found: is an NVIDIA driver installed?");
  CHECK(cu::driver_version() == 0);
  int count = 0;
  CHECK_THROWS_WITH(
      BRRR_CUDA(cuDeviceGetCount, &count),
      "[cuda] cuDeviceGetCount cannot be called: libcuda.so.1 not found: is an NVIDIA driver "
      "installed?");
  CHECK_THROWS_WITH(
      require_device(cuda(0), "empty"),
      "[empty] expected a CUDA device, got none: libcuda.so.1 not found: is an NVIDIA driver "
      "installed?");
}

TEST_CASE("NVRTC opens by itself", "[cuda_api]") {
  const std::string why = cu::open_library(cu::Library::nvrtc);
  if (!why.empty()) {
    CHECK_THAT(why, Contains("libnvrtc.so not found"));
    CHECK(cu::nvrtc_version() == 0);
    return;
  }
  CHECK(cu::nvrtc_version() >= 12040);
  nvrtcProgram program = nullptr;
  BRRR_CUDA(nvrtcCreateProgram, &program, "this is not CUDA", "bad.cu", 0, nullptr, nullptr);
  CHECK_THROWS_WITH(BRRR_CUDA(nvrtcCompileProgram, program, 0, nullptr),
                    Contains("nvrtcCompileProgram failed: NVRTC_ERROR_COMPILATION (6)"));
  BRRR_CUDA(nvrtcDestroyProgram, &program);
}

TEST_CASE("an old driver and an empty one are named", "[cuda_api]") {
  {
    FakeCuda fake({.driver_version = 12020});
    CHECK(cu::driver_problem() ==
          "the NVIDIA driver supports CUDA 12.2, brrr needs 12.4 or newer: update the driver");
    CHECK_FALSE(cuda_is_available());
  }
  {
    FakeCuda fake({.devices = 0});
    CHECK_THAT(cu::driver_problem(), Contains("the NVIDIA driver shows no device"));
  }
  {
    FakeCuda fake;
    cu::fail_call("cuInit", 1, CUDA_ERROR_UNKNOWN);
    CHECK_THAT(cu::driver_problem(), Contains("did not start: CUDA_ERROR_UNKNOWN (999)"));
    CHECK(cu::driver_problem().empty());
  }
}

TEST_CASE("an error names the op, the call, the code and the text", "[cuda_api]") {
  FakeCuda fake;
  CUdevice device = 0;
  cu::fail_call("cuDeviceGet", 1, CUDA_ERROR_OUT_OF_MEMORY);
  thread_context.op = "add";
  try {
    BRRR_CUDA(cuDeviceGet, &device, 0);
    FAIL("no error");
  } catch (const CudaError& error) {
    CHECK(error.code() == 2);
    CHECK(std::string(error.what()) ==
          "[add] cuDeviceGet failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
  }
  thread_context.op = nullptr;
}

TEST_CASE("the k-th call fails, once", "[cuda_api]") {
  FakeCuda fake;
  CUdevice device = 0;
  for (long k = 1; k <= 4; ++k) {
    cu::fail_call("cuDeviceGet", k, CUDA_ERROR_UNKNOWN);
    for (long i = 1; i <= 6; ++i) {
      const CUresult code = BRRR_CUDA_TRY(cuDeviceGet, &device, 0);
      CHECK(code == (i == k ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS));
    }
  }
  cu::fail_call("cuDeviceGet", 1, CUDA_ERROR_UNKNOWN);
  cu::clear_faults();
  CHECK(BRRR_CUDA_TRY(cuDeviceGet, &device, 0) == CUDA_SUCCESS);
  CHECK_THROWS_AS(cu::fail_call("cuNothing", 1, 1), Error);
}

TEST_CASE("calls are counted by name", "[cuda_api]") {
  FakeCuda fake;
  CUdevice device = 0;
  cu::count_calls(true);
  for (int i = 0; i < 3; ++i) BRRR_CUDA(cuDeviceGet, &device, 0);
  CHECK(cu::call_count("cuDeviceGet") == 3);
  CHECK(cu::call_count("cuMemAlloc") == 0);
  CHECK(cu::call_counts().size() == 1);
  cu::count_calls(false);
  BRRR_CUDA(cuDeviceGet, &device, 0);
  CHECK(cu::call_count("cuDeviceGet") == 0);
}

TEST_CASE("an installed table without an entry says so", "[cuda_api]") {
  cu::Table table = {};
  table.cuInit = [](unsigned) { return CUDA_SUCCESS; };
  cu::install_table(table);
  CHECK_THROWS_WITH(BRRR_CUDA(cuGraphUpload, nullptr, nullptr),
                    Contains("this version of the library has no cuGraphUpload"));
  cu::uninstall_table();
}
