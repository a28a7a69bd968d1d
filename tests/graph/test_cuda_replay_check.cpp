// CompileOptions::verify and gradients in other memory, on the fake driver.
#include <optional>
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/cuda_testing.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_memory.h"

using namespace brrr;
using namespace brrr::testing;

namespace {

Tensor filled(Device device, double value) {
  return tensor(std::vector<float>(24, static_cast<float>(value)), {24}, device);
}

}  // namespace

TEST_CASE("a step on CUDA is verified", "[compile][cuda_compile][verify]") {
  const NoDiskCache off;
  FakeCuda fake({.capacity = 256 * kMiB, .seed = 5, .with_nvrtc = true});
  define_kernels(fake);
  const auto run = [](Device device, int verify) {
    Tensor total = filled(device, 1), scale = filled(device, 2);
    double factor = 0.5;
    auto step = compile(
        [&](const Tensor& x, Tensor written) {
          copy_(total, mul(add(total, x), factor));
          copy_(written, mul(written, 2));
          return add(total, scale);
        },
        {.fallback = OnFallback::refuse, .verify = verify});
    std::vector<std::vector<float>> values;
    for (int call = 0; call < 5; ++call) {
      const Tensor written = filled(device, call);
      values.push_back(to_vector<float>(step(filled(device, call), written)));
      values.push_back(to_vector<float>(written));
      values.push_back(to_vector<float>(total));
    }
    if (verify < 6) return values;
    factor = 0.25;
    std::optional<VerifyError> error;
    try {
      step(filled(device, 1), filled(device, 1));
    } catch (const VerifyError& thrown) {
      error = thrown;
    }
    REQUIRE(error);
    CHECK(error->op() == "mul");
    CHECK(to_vector<float>(total) == values.back());
    return values;
  };
  CHECK(run(gpu, 3) == run(gpu, 0));
  CHECK(run(gpu, 6) == run(cpu, 6));
  synchronize(gpu);
}

TEST_CASE("a captured graph follows the gradients of its leaves", "[compile][cuda_compile]") {
  const NoDiskCache off;
  FakeCuda fake({.capacity = 256 * kMiB, .seed = 6, .with_nvrtc = true});
  define_kernels(fake);
  const auto run = [](Device device, int& traces) {
    const Tensor w = requires_grad_(filled(device, 3)), g = filled(device, 1);
    const auto adds = [&](double factor) {
      return compile(
          [&, factor] {
            ++traces;
            backward(mul(w, factor), g);
          },
          {.mode = device.is_cpu() ? Mode::eager : Mode::graph, .fallback = OnFallback::refuse});
    };
    auto a = adds(2), b = adds(4);
    std::vector<std::vector<float>> values;
    for (const char letter : std::string("abzbazabzeabzbbhazhba")) {
      switch (letter) {
        case 'a': a(); break;
        case 'b': b(); break;
        case 'e': backward(mul(w, 8), g); break;
        case 'h': set_grad(w, filled(device, 16)); break;
        default: zero_grad(w);
      }
      if (grad(w).defined()) values.push_back(to_vector<float>(grad(w)));
    }
    return values;
  };
  int eager = 0, traces = 0;
  const auto expected = run(cpu, eager);
  CHECK(run(gpu, traces) == expected);
  CHECK(traces <= 4);
  synchronize(gpu);
}
