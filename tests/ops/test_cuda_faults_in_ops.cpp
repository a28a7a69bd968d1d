// Every call into CUDA that ops make fails once, on the fake driver: from a device on which nothing
// has run, so that compiling, loading and planning are among the calls. Its kernels are
// those of tests/fake_cuda/kernels.cpp. What kernels really compute is seen on a GPU
// (tests/gpu/test_faults.cpp).
#include "brrr/measure/limits.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/error.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_memory.h"
#include "tests/harness/cuda_op_faults.h"

using namespace brrr;
using namespace brrr::test;
using namespace brrr::testing;

namespace {

constexpr FakeOptions kDriver{
    .capacity = 256 * kMiB, .seed = 5, .with_nvrtc = true, .with_cublaslt = true};

// What is left at the driver when everything was given back: modules, which live as long as the
// process.
FakeCounts left_over(const FakeCuda& fake) {
  release_kept();
  CHECK(memory_stats(gpu).live == 0);
  cu::shut_down();
  return fake.counts();
}

long objects(const FakeCounts& c) {
  return c.allocations + c.pinned + c.streams + c.events + c.modules + c.graphs + c.executables +
         c.contexts + c.programs + c.library_objects;
}

}  // namespace

TEST_CASE("the fake driver's kernels compute what the CPU does", "[cuda_faults]") {
  const NoDiskCache off;
  for (const FaultWorkload& workload : fault_workloads()) {
    if (workload.name == "random numbers and dropout" || workload.name == "a registered op")
      continue;  // the CPU draws other numbers than the fake kernel, and lacks the op
    INFO(workload.name);
    const std::vector<Bits> expected = clean_run(workload, cpu);
    FakeCuda fake(kDriver);
    define_kernels(fake);
    CHECK(clean_run(workload, gpu) == expected);
    left_over(fake);
  }
}

TEST_CASE("a fault at every call of an op", "[cuda_faults]") {
  const NoDiskCache off;
  long faults = 0, thrown = 0;
  for (const FaultWorkload& workload : fault_workloads()) {
    INFO(workload.name);
    std::vector<Bits> clean;
    std::vector<std::pair<std::string_view, long>> calls;
    FakeCounts left;
    {
      FakeCuda fake(kDriver);
      define_kernels(fake);
      clean = clean_run(workload, gpu);
      left = left_over(fake);
    }
    {
      FakeCuda fake(kDriver);
      define_kernels(fake);
      calls = calls_of(workload, gpu);
      left_over(fake);
    }
    CHECK(calls.size() >= 3);
    for (const auto& [call, count] : calls) {
      const auto [first, second] = codes_of(call);
      for (long k = 1; k <= count; ++k) {
        for (const int code : {first, second}) {
          INFO(call << " number " << k << ", code " << code);
          FakeCuda fake(kDriver);
          define_kernels(fake);
          const FaultOutcome outcome = faulted_run(workload, gpu, call, k, code, clean);
          CHECK(outcome.problem == "");
          // What the driver refuses to destroy is still there, and nothing else.
          const bool destroys = call.find("Destroy") != std::string_view::npos;
          const FakeCounts now = left_over(fake);
          if (destroys) {
            CHECK(objects(now) - objects(left) <= 1);
          } else {
            CHECK(now == left);
          }
          ++faults;
          thrown += outcome.thrown;
        }
      }
    }
  }
  CHECK(thrown > faults / 2);
}

TEST_CASE("a measurement of cuBLASLt alone gives everything back when a call fails",
          "[cuda_faults]") {
  const NoDiskCache off;
  FakeCuda fake(kDriver);
  {
    const Tensor a[] = {tensor(std::vector<float>(12, 1.0f), {3, 4}, gpu)};
    const Tensor b[] = {tensor(std::vector<float>(20, 1.0f), {4, 5}, gpu)};
    const measure::MatmulProblem problem{.m = 3, .n = 5, .k = 4};
    cu::count_calls(true);
    measure::bare_matmul(gpu, problem, a, b);
    const auto calls = cu::call_counts();
    cu::count_calls(false);
    const long kept = fake.counts().library_objects;
    const std::int64_t live = memory_stats(gpu).live;
    for (const auto& [call, count] : calls) {
      if (!call.starts_with("cublasLt") || call.ends_with("Destroy")) continue;
      for (long k = 1; k <= count; ++k) {
        INFO(call << " number " << k);
        cu::fail_call(call, k, CUBLAS_STATUS_INTERNAL_ERROR);
        CHECK_THROWS_AS(measure::bare_matmul(gpu, problem, a, b), CudaError);
        CHECK(fake.counts().library_objects == kept);
        CHECK(memory_stats(gpu).live == live);
      }
    }
    cu::clear_faults();
  }
  left_over(fake);
}

TEST_CASE("a kernel that a module lacks is named", "[cuda_faults]") {
  const NoDiskCache off;
  FakeCuda fake(kDriver);
  cu::fail_call("cuModuleGetFunction", 1, CUDA_ERROR_NOT_FOUND);
  {
    const Tensor x = tensor({1, 2}, gpu);
    CHECK_THROWS_WITH(exp(x), Catch::Contains("[exp] cuModuleGetFunction failed for \"exp_f32\""));
  }
  left_over(fake);
}
