// Every call into CUDA that ops make on a real GPU fails once, in their steady state: kernels are
// compiled and loaded by then, which test_cuda_faults_in_ops.cpp does on the fake driver. And the
// memory of captured graphs.
#include <cstdio>
#include <vector>

#include "brrr/ops/functions.h"
#include "brrr/tensor/cuda_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_op_faults.h"

using namespace brrr;
using namespace brrr::test;
using brrr::testing::kGpu;

TEST_CASE("a fault at every call of an op on CUDA", "[gpu][faults]") {
  long faults = 0, thrown = 0;
  for (const FaultWorkload& workload : fault_workloads()) {
    INFO(workload.name);
    const std::vector<Bits> clean = clean_run(workload, kGpu);
    CHECK(clean_run(workload, kGpu) == clean);
    const auto calls = calls_of(workload, kGpu);
    synchronize(kGpu);
    const std::int64_t live = memory_stats(kGpu).live;
    for (const auto& [call, count] : calls) {
      const auto [first, second] = codes_of(call);
      for (long k = 1; k <= count; ++k) {
        for (const int code : {first, second}) {
          INFO(call << " number " << k << ", code " << code);
          const FaultOutcome outcome = faulted_run(workload, kGpu, call, k, code, clean);
          CHECK(outcome.problem == "");
          CHECK(memory_stats(kGpu).live == live);
          ++faults;
          thrown += outcome.thrown;
        }
      }
    }
  }
  std::printf("faults on CUDA: %ld, %ld of them thrown\n", faults, thrown);
  CHECK(thrown > faults / 2);
}

TEST_CASE("a captured graph keeps its memory to itself", "[gpu][faults]") {
  const Stream stream(kGpu);
  const StreamGuard guard(stream);
  auto& state = static_cast<cu::CudaStream&>(*StreamState::of(stream));
  const Tensor x = arange(0.0, 4096.0, {.dtype = f32, .device = kGpu});
  Tensor out = zeros({4096}, {.device = kGpu});
  const auto step = [&] { copy_(out, mul(add(x, 1), add(x, 2))); };
  step();
  stream.synchronize();
  const std::vector<float> expected = to_vector<float>(out);
  const std::int64_t live = memory_stats(kGpu).live;
  for (int round = 0; round < 20; ++round) {
    cu::CapturePool pool(*state.on);
    cu::begin_capture(pool, state, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    step();
    const CUgraph graph = cu::end_capture(pool, state);
    CUgraphExec exec = nullptr;
    BRRR_CUDA(cuGraphInstantiate, &exec, graph, 0);
    const Stream replay(kGpu);
    replay.wait(stream.record());
    std::vector<Tensor> others;
    for (int i = 0; i < 50; ++i) others.push_back(full({4096}, i, {.device = kGpu}));
    zero_(out);
    replay.wait(stream.record());
    pool.launched_on(static_cast<cu::CudaStream&>(*StreamState::of(replay)));
    BRRR_CUDA(cuGraphLaunch, exec, static_cast<CUstream>(StreamState::of(replay)->native()));
    stream.wait(replay.record());
    CHECK(to_vector<float>(out) == expected);
    for (int i = 0; i < 50; ++i) {
      CHECK(item(max(others[static_cast<std::size_t>(i)])) == i);
      CHECK(item(min(others[static_cast<std::size_t>(i)])) == i);
    }
    BRRR_CUDA(cuGraphExecDestroy, exec);
    BRRR_CUDA(cuGraphDestroy, graph);
  }
  CHECK(memory_stats(kGpu).live == live);
}
