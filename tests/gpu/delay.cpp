#include "tests/gpu/delay.h"

#include "brrr/io/strided_bytes.h"

namespace brrr::testing {
namespace {

constexpr const char* kSlowCopy = R"(
extern "C" __global__ void test_slow_copy(const float* x, float* y, i64 n, i64 nanoseconds) {
  if (threadIdx.x == 0) {
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < u64(nanoseconds));
  }
  __syncthreads();
  for (i64 i = blockIdx.x * i64(blockDim.x) + threadIdx.x; i < n; i += i64(gridDim.x) * blockDim.x)
    y[i] = reinterpret_cast<const volatile float*>(x)[i];
})";

Op slow_copy_op() {
  static const Op op = [] {
    StructuredOp definition;
    definition.cost = cost_of_moving;
    definition.name = "test_slow_copy";
    definition.attributes = "count nanoseconds";
    definition.infer = [](const Call& call, OutputSpec* outputs) {
      outputs[0] = {f32, call.input(0).device(), Dims(call.input(0).shape())};
    };
    definition.cuda_kernel.entry = "test_slow_copy";
    definition.cuda_kernel.source = kSlowCopy;
    definition.cuda_kernel.launch = [](const Call& call, const Tensor*) {
      LaunchConfig launch;
      launch.grid[0] = call.input(0).numel() > 4096 ? 16 : 1;
      return launch;
    };
    return register_op(definition);
  }();
  return op;
}

}  // namespace

Tensor slow_copy(const Tensor& x, double microseconds) {
  return call_op(slow_copy_op(), {x},
                 {x.numel(), static_cast<std::int64_t>(microseconds * 1000)})[0];
}

void delay(double microseconds) {
  // Made anew on the current stream, so that it has nothing to do with any other.
  slow_copy(zeros({1}, {.device = kGpu}), microseconds);
}

std::vector<std::byte> bits_of(const Tensor& tensor) {
  const Tensor host = contiguous_on_host(tensor, "bits_of");
  std::vector<std::byte> bytes(host.bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), host.data(), bytes.size());
  return bytes;
}

}  // namespace brrr::testing
