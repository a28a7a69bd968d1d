// Products in tiles of fused steps on CUDA: which run in one launch. The names of kernels' calls
// tell, and their texts compile; nothing here needs a GPU.
#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/ops/random_state.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"

namespace brrr::test {
namespace {

struct Layer {
  std::int64_t rows, in, out;
};

// The launches of a layer's backward pass, by the names of their calls.
std::vector<std::string> launches_of(const Layer& layer, DType dtype) {
  const Options here{.dtype = dtype, .device = cuda(0)};
  auto step = compile(
      [](const Tensor& y, const Tensor& w, const Tensor& x) {
        const Tensor dy = relu(y);
        return std::vector<Tensor>{matmul(dy, w), matmul(transpose(dy, 0, 1), x), sum(dy, 0)};
      },
      {.mode = Mode::fused, .fallback = OnFallback::refuse});
  step(empty({layer.rows, layer.out}, here), empty({layer.out, layer.in}, here),
       empty({layer.rows, layer.in}, here));
  std::vector<std::string> launches;
  for (const GeneratedKernel& kernel : step.kernels()) {
    std::string calls;
    for (const std::string& call : kernel.calls) calls += (calls.empty() ? "" : " + ") + call;
    launches.push_back(calls);
  }
  return launches;
}

}  // namespace

TEST_CASE("the gradients of a layer in 16 bits are one launch of tiles", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  const std::vector<std::string> one{"matmul + matmul + sum"};  // relu is a call alone
  for (const DType dtype : {bf16, f16}) {
    CHECK(launches_of({2048, 1024, 1024}, dtype) == one);
    CHECK(launches_of({1024, 1024, 1024}, dtype) == one);
    CHECK(launches_of({4096, 512, 2048}, dtype) == one);  // alone the weight's would be split
  }
  release_random_state();
  CHECK(fake.problem() == "");
}

TEST_CASE("sums of few rows are kernels of their own", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  const std::vector<std::string> products{"matmul + matmul"};
  CHECK(launches_of({512, 2048, 2048}, bf16) == products);
  release_random_state();
  CHECK(fake.problem() == "");
}

}  // namespace brrr::test
