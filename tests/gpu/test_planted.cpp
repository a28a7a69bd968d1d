// Kernels with a bug for each tool of compute-sanitizer. Hidden: tests/gpu/sanitize runs them to
// prove that a tool reports what it is for. Without a tool nothing of them is seen.
#include "brrr/ops/functions.h"
#include "brrr/ops/register_op.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/runtime.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"

using namespace brrr;
using namespace brrr::testing;

namespace {

constexpr std::int64_t kThreads = 64;

// A kernel of one block over x and y, of kThreads floats each.
void run_planted(const char* entry, const char* source, const Tensor& x) {
  StructuredOp definition;
  definition.cost = cost_of_moving;
  definition.name = entry;
  definition.infer = [](const Call& call, OutputSpec* outputs) {
    outputs[0] = {f32, call.input(0).device(), Dims(call.input(0).shape())};
  };
  definition.cuda_kernel.entry = entry;
  definition.cuda_kernel.source = source;
  definition.cuda_kernel.launch = [](const Call&, const Tensor*) {
    LaunchConfig launch;
    launch.block[0] = kThreads;
    return launch;
  };
  const Tensor y = call_op(register_op(definition), {x}, {})[0];
  synchronize(kGpu);
  CHECK(y.numel() == kThreads);
}

Tensor some() { return ones({kThreads}, {.device = kGpu}); }

}  // namespace

// One element beyond a tensor: another tensor's, or nobody's, unless each is an allocation.
TEST_CASE("planted: a read out of bounds", "[.][planted][memcheck]") {
  run_planted("planted_out_of_bounds", R"(
extern "C" __global__ void planted_out_of_bounds(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x + 1];
})",
              some());
}

TEST_CASE("planted: a read of shared memory without a barrier", "[.][planted][racecheck]") {
  run_planted("planted_race", R"(
extern "C" __global__ void planted_race(const float* x, float* y) {
  __shared__ float values[64];
  values[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = values[63 - threadIdx.x];
})",
              some());
}

TEST_CASE("planted: a read of memory that nothing was written to", "[.][planted][initcheck]") {
  run_planted("planted_uninitialized", R"(
extern "C" __global__ void planted_uninitialized(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x] + 1;
})",
              empty({kThreads}, {.device = kGpu}));
}

TEST_CASE("planted: a barrier for a part of a warp", "[.][planted][synccheck]") {
  run_planted("planted_divergence", R"(
extern "C" __global__ void planted_divergence(const float* x, float* y) {
  if (threadIdx.x % 32 < 16) __syncthreads();
  y[threadIdx.x] = x[threadIdx.x];
})",
              some());
}
