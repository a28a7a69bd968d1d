// The CUDA part of brrr calibrate, on the fake driver: times mean nothing there.
#include "brrr/measure/calibrate.h"
#include "brrr/measure/limits.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/random_state.h"
#include "brrr/tensor/cuda_api.h"
#include "brrr/tensor/stream.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/cubin.h"

using namespace brrr;

TEST_CASE("multiply-adds on CUDA fill the device", "[calibrate]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  unsigned blocks = 0, threads = 0;
  std::int64_t rounds = 0;
  fake.define_kernel("multiply_add", {8, 8}, [&](const testing::FakeLaunch& launch) {
    blocks = launch.grid[0];
    threads = launch.block[0];
    rounds = launch.argument<std::int64_t>(1);
  });
  {
    const measure::MultiplyAdds work = measure::device_multiply_adds(cuda(0), f64);
    work.batch(1);
    synchronize(cuda(0));
    CHECK(blocks * threads == 132 * 2048);
    CHECK(work.flops == 2.0 * 8 * static_cast<double>(rounds) * 132 * 2048);
  }
  CHECK_THAT(measure::multiply_add_source(f64), Catch::StartsWith("typedef double Real;"));
}

TEST_CASE("the kernel of multiply-adds compiles", "[calibrate]") {
  if (!cu::open_library(cu::Library::nvrtc).empty()) return;
  const testing::NoDiskCache off;
  for (const DType dtype : {f32, f64}) {
    for (const int architecture : {80, 90}) {
      CHECK_FALSE(
          jit::compile_to_cubin(measure::multiply_add_source(dtype), architecture, {.fast = true})
              .empty());
    }
  }
}

TEST_CASE("a calibration on CUDA goes through its readings", "[calibrate]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  constexpr std::size_t kParts = 16 * 24;  // of graph/boundary_copies.cu
  for (const char* edge : {"copy_arguments", "copy_results", "write_back_arguments"})
    fake.define_kernel(edge, {kParts}, [](const testing::FakeLaunch&) {});
  std::vector<std::string> shown;
  const auto run = [&] {
    measure::calibrate({.device = cuda(0), .quick = true, .progress = [&](const std::string& name) {
                          shown.push_back(name);
                        }});
  };
  // The last one is of doubles, which the fake library does not multiply.
  CHECK_THROWS_WITH(run(), Catch::Contains("cublasLtMatrixLayoutCreate failed"));
  REQUIRE(shown.size() > 8);
  CHECK(shown[shown.size() - 2] == "products of 16x16x16 tf32");
  CHECK(shown.back() == "products of 16x16x16 f64");
  synchronize(cuda(0));
  release_random_state();
}

TEST_CASE("a GPU without its management library is not checked for other work", "[calibrate]") {
  testing::FakeCuda fake;
  const measure::GpuState state = measure::gpu_state(cuda(0));
  REQUIRE(state.unavailable.size() == 2);
  CHECK(state.unavailable == measure::not_checked(state));
  CHECK_THAT(state.unavailable[0], Catch::StartsWith("other processes on the card: "));
  CHECK_FALSE(state.processes);
  CHECK(state.slowed_by.empty());
}
