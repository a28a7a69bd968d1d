// Calls with effects on the fake driver, which runs a graph's nodes in any order that its edges
// allow.
#include <vector>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/register_op.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_memory.h"

using namespace brrr;
using namespace brrr::testing;

namespace {

// A tensor that kernels write without its being an operand.
Tensor hidden;

Op mixing_op(const char* name, double factor, const std::string& channel) {
  const auto kernel = [factor](const Call& call, Tensor* outputs) {
    mul_(hidden, factor);
    add_(hidden, call.input(0));
    copy_(outputs[0], call.input(0));
  };
  return register_op(StructuredOp{.name = name,
                                  .infer =
                                      [](const Call& call, OutputSpec* outputs) {
                                        outputs[0] = {call.input(0).dtype(), call.input(0).device(),
                                                      Dims(call.input(0).shape())};
                                      },
                                  .cpu = kernel,
                                  .cuda = kernel,
                                  .channel = channel,
                                  .cost = cost_of_moving});
}

Tensor filled(Device device, double value) {
  return tensor(std::vector<float>(24, static_cast<float>(value)), {24}, device);
}

// Chains that share nothing, each with a call of one op and of the other.
std::vector<std::vector<float>> run(Device device, Op one, Op two, bool read) {
  hidden = filled(device, 3);
  std::vector<Tensor> starts;
  for (int i = 0; i < 4; ++i) starts.push_back(filled(device, i + 1));
  auto step = compile(
      [&](const Tensor& x) {
        std::vector<Tensor> ends;
        for (std::size_t i = 0; i < starts.size(); ++i) {
          const Tensor y =
              call_op(i % 2 ? one : two, std::vector<Tensor>{mul(starts[i], 2)}, {})[0];
          const Tensor z = call_op(i % 2 ? two : one, std::vector<Tensor>{add(y, x)}, {})[0];
          ends.push_back(mul(z, 0.5));
          if (read && i == 1) ends.push_back(mul(hidden, 2));
        }
        return ends;
      },
      {.mode = device.is_cpu() ? Mode::eager : Mode::graph});
  std::vector<std::vector<float>> values;
  for (int call = 0; call < 4; ++call) {
    for (const Tensor& x : step(filled(device, call))) values.push_back(to_vector<float>(x));
    values.push_back(to_vector<float>(hidden));
  }
  hidden = Tensor();
  return values;
}

}  // namespace

TEST_CASE("a captured graph has edges between calls with effects", "[compile][cuda_compile]") {
  static const Op one = mixing_op("test_cuda_effects_one", 0.5, ""),
                  two = mixing_op("test_cuda_effects_two", 0.25, ""),
                  left = mixing_op("test_cuda_effects_left", 0.5, "test hidden"),
                  right = mixing_op("test_cuda_effects_right", 0.25, "test hidden");
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    const NoDiskCache off;
    FakeCuda fake({.capacity = 256 * kMiB, .seed = seed, .with_nvrtc = true});
    define_kernels(fake);
    CHECK(run(gpu, one, two, true) == run(cpu, one, two, true));
    CHECK(run(gpu, left, right, false) == run(cpu, left, right, false));
    synchronize(gpu);
  }
}
