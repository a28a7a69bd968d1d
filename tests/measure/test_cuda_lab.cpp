// Experiments of the lab on the fake driver, which multiplies no large matrices in time. Times and
// results mean nothing there; accesses do.
#include "brrr/ops/random_state.h"
#include "brrr/tensor/stream.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/cubin.h"
#include "tests/harness/lab_findings.h"

using namespace brrr;

TEST_CASE("experiments on bandwidth and overhead go through on CUDA", "[lab]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  constexpr std::size_t kParts = 16 * 24;  // of graph/boundary_copies.cu
  for (const char* edge : {"copy_arguments", "copy_results", "write_back_arguments"})
    fake.define_kernel(edge, {kParts}, [](const testing::FakeLaunch&) {});
  int runs = 0;
  for (const measure::Experiment& experiment : measure::experiments()) {
    const std::string name = experiment.name;
    for (const char* wanted :
         {"memory-ladder", "transfers", "cos-of-cos", "fused-cost", "activations", "in-place",
          "recomputation", "break-even", "multiply-add", "additions", "one-addition", "chain"}) {
      if (name != wanted) continue;
      const auto readings = testing::run_experiment(experiment, cuda(0));
      // Generated kernels compute nothing there, so that differences of results mean nothing.
      if (name != "chain") testing::check_exact_readings(name, readings);
      ++runs;
    }
  }
  CHECK(runs == 12);
  synchronize(cuda(0));
  release_random_state();
}
