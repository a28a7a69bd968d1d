// Which products get a copy of a factor. Nothing here needs a GPU.
#include "brrr/graph/compile.h"
#include "brrr/ops/factor_copy.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/kernel_sources.h"

namespace brrr::test {
namespace {

FactorLayout rows(std::int64_t count, std::int64_t length) {
  return {{count, length}, {length, 1}};
}
FactorLayout columns(std::int64_t count, std::int64_t length) {
  return {{count, length}, {1, count}};
}

// Of the product of a [m, k] and b [k, n] with adjacent elements along m and n.
int worth(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = f32) {
  return factor_worth_copying(columns(m, k), rows(k, n), dtype, cuda(0));
}

// What a step says of the gradient of a weight [k, n], with x [m, k].
std::string weight_gradient(std::int64_t m, std::int64_t k, std::int64_t n, DType dtype,
                            Mode mode = Mode::fused) {
  const Options here{.dtype = dtype, .device = cuda(0)};
  auto step = compile(
      [](const std::vector<Tensor>& a) { return std::vector{matmul(transpose(a[0], 0, 1), a[1])}; },
      {.mode = mode, .fallback = OnFallback::refuse});
  step(std::vector<Tensor>{empty({m, k}, here), empty({m, n}, here)});
  return step.graph_text();
}

bool copies(const std::string& text) { return text.find(" = copy(") != std::string::npos; }

}  // namespace

TEST_CASE("a factor is worth a copy where a TF32 product of that size gains by it", "[fuse]") {
  const MatmulPrecisionGuard tf32(Precision::tf32);
  CHECK(worth(1024, 1024, 2048) == 1);
  CHECK(worth(1024, 1100, 2048) == 1);
  CHECK(worth(1024, 2048, 2048) == 0);  // too long for A in registers: the smaller factor
  CHECK(worth(512, 2048, 4096) == 0);   // so much smaller that the copy saves more than tiles do
  CHECK(worth(2048, 512, 4096) == 1);
  CHECK(worth(128, 128, 256) == -1);    // a launch takes longer
  CHECK(worth(16, 4096, 65536) == -1);  // waits for memory
  CHECK(worth(1024, 1024, 2048, bf16) == -1);
  CHECK(worth(1024, 1024, 2048, f64) == -1);
  CHECK(factor_worth_copying(rows(1024, 2048), rows(2048, 1024), f32, cuda(0)) == -1);
  CHECK(factor_worth_copying(columns(1024, 2048), columns(2048, 1024), f32, cuda(0)) == -1);
  CHECK(factor_worth_copying(columns(1024, 2048), rows(2048, 1024), f32, cpu) == -1);
  const MatmulPrecisionGuard full(Precision::full);
  CHECK(worth(1024, 1024, 2048) == -1);
}

TEST_CASE("a weight's gradient in TF32 reads a copy of a factor", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  {
    const MatmulPrecisionGuard tf32(Precision::tf32);
    const std::string text = weight_gradient(2048, 1024, 1024, f32);
    INFO(text);
    CHECK(copies(text));
    CHECK(text.find("copy(input1 f32[1024, 2048] by [1, 1024])") != std::string::npos);
    CHECK(copies(weight_gradient(4096, 2048, 512, f32)));
    CHECK_FALSE(copies(weight_gradient(256, 128, 128, f32)));
    CHECK_FALSE(copies(weight_gradient(2048, 1024, 1024, f32, Mode::graph)));
  }
  CHECK_FALSE(copies(weight_gradient(2048, 1024, 1024, f32)));
  CHECK(fake.problem() == "");
}

namespace {

// The text of a step with a product of an activation, and the gradient of a weight that reads it.
std::string both_products(Tensor (*activation)(const std::vector<Tensor>&)) {
  const Options here{.device = cuda(0)};
  auto step = compile(
      [activation](const std::vector<Tensor>& a) {
        const Tensor x = activation(a);
        return std::vector{matmul(x, a[1]), matmul(transpose(a[2], 0, 1), x)};
      },
      {.mode = Mode::fused, .fallback = OnFallback::refuse});
  step(std::vector<Tensor>{empty({2048, 1024}, here), empty({1024, 1024}, here),
                           empty({2048, 1024}, here), empty({1024}, here)});
  return step.graph_text();
}

}  // namespace

TEST_CASE("the kernel that computes a factor stores its copy, too", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  {
    const MatmulPrecisionGuard tf32(Precision::tf32);
    const auto has = [](const std::string& text, const char* part) {
      INFO(text << "has " << part);
      CHECK(text.find(part) != std::string::npos);
    };
    has(both_products([](const std::vector<Tensor>& a) { return gelu_tanh(a[0]); }),
        "fused[gelu_tanh, copy](");
    has(both_products([](const std::vector<Tensor>& a) {
          return relu(affine(a[0], transpose(a[1], 0, 1), a[3]));
        }),
        "fused[affine, relu, copy](");
    // A kernel of rows does not: the copy is a kernel of its own.
    const std::string rows =
        both_products([](const std::vector<Tensor>& a) { return softmax(a[0], 1); });
    has(rows, "div](");
    has(rows, " = copy(");
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("the gradients of a layer in TF32 are one launch", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  {
    const MatmulPrecisionGuard tf32(Precision::tf32);
    const Options here{.device = cuda(0)};
    // Of the input, with the gradient of an activation before it; of the weight and the bias.
    auto step = compile(
        [](const std::vector<Tensor>& a) {
          const Tensor x = gelu_tanh(a[0]), dy = tanh(gelu_tanh(a[1]));
          return std::vector{matmul(dy, a[2]) * a[0], matmul(transpose(dy, 0, 1), x), sum(dy, 0)};
        },
        {.mode = Mode::fused, .fallback = OnFallback::refuse});
    step(std::vector<Tensor>{empty({2048, 1024}, here), empty({2048, 1024}, here),
                             empty({1024, 1024}, here)});
    INFO(step.graph_text());
    CHECK(step.graph_text().find("fused[matmul, mul, matmul, sum](") != std::string::npos);
    const std::int64_t product = std::int64_t{2} * 2048 * 1024 * 1024, elements = 2048 * 1024;
    CHECK(step.kernels().back().flops == 2 * (product + elements));
  }
  CHECK(fake.problem() == "");
}

}  // namespace brrr::test
