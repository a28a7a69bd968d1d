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

constexpr FactorCopies kNone = {FactorCopy::none, FactorCopy::none};

// The factor that is copied: 0 or 1, or -1 for neither.
int worth(const FactorLayout& a, const FactorLayout& b, DType dtype, Device device) {
  const FactorCopies copies = copies_for_tf32(a, b, dtype, device);
  CHECK((copies[0] == FactorCopy::none || copies[1] == FactorCopy::none));
  return copies[0] == FactorCopy::transposed ? 0 : copies[1] == FactorCopy::transposed ? 1 : -1;
}
// Of the product of a [m, k] and b [k, n] with adjacent elements along m and n.
int worth(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = f32) {
  return worth(columns(m, k), rows(k, n), dtype, cuda(0));
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
  CHECK(worth(rows(1024, 2048), rows(2048, 1024), f32, cuda(0)) == -1);
  CHECK(worth(columns(1024, 2048), columns(2048, 1024), f32, cuda(0)) == -1);
  CHECK(worth(columns(1024, 2048), rows(2048, 1024), f32, cpu) == -1);
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

namespace {

// The text of a layer's step with its gradients, and what explain() says. The weight begins at
// element `first` of a packed parameter.
std::string layer(std::int64_t batch, std::int64_t w, DType dtype, std::int64_t first,
                  Mode mode = Mode::fused) {
  const Options here{.dtype = dtype, .device = cuda(0)};
  auto step = compile(
      [=](const std::vector<Tensor>& a) {
        const Tensor weight = reshape(slice(a[1], 0, first, first + w * w), {w, w});
        const Tensor y = gelu_tanh(matmul(a[0], transpose(weight, 0, 1))), dz = y * a[2];
        const std::vector<Tensor> gradients = {reshape(matmul(transpose(dz, 0, 1), a[0]), {w * w}),
                                               sum(dz, 0)};
        return std::vector{matmul(dz, weight), cat(gradients) * 2.0};
      },
      {.mode = mode, .fallback = OnFallback::refuse});
  step(std::vector<Tensor>{empty({batch, w}, here), empty({first + w * w}, here),
                           empty({batch, w}, here)});
  return step.graph_text() + step.explain();
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

}  // namespace

TEST_CASE("products of odd widths read copies with aligned rows", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  {
    const MatmulPrecisionGuard tf32(Precision::tf32);
    for (const DType dtype : {f32, bf16}) {
      const std::string text = layer(512, 513, dtype, 3);
      INFO(text);
      // Of x, of the weight for both products that read it, and of dz beside its computation; in
      // TF32 one of x along the batch, too.
      CHECK(count(text, " = copy(") == (dtype == f32 ? 3 : 2));
      CHECK(count(text, dtype == f32 ? "[513, 513] by [516, 1] = copy("
                                     : "[513, 513] by [520, 1] = copy(") == 1);
      CHECK(count(text, ", copy](") == 1);
      CHECK(count(text, "fused[matmul") >= 2);  // no product is the library's
      // Parts of odd lengths are stored in their places all the same: the concatenation is no call.
      CHECK(text.find(dtype == f32 ? "8 calls in" : "7 calls in") != std::string::npos);
    }
    for (const std::int64_t first : {0, 4})
      CHECK(count(layer(512, 512, f32, first), "[512, 512] by [512, 1] = copy(") == 0);
    // Small products load what begins anywhere; nothing is copied in graph mode, nor in f32.
    CHECK(count(layer(64, 65, f32, 3), " = copy(") == 0);
    CHECK(count(layer(512, 513, f32, 3, Mode::graph), " = copy(") == 0);
  }
  CHECK(count(layer(512, 513, f32, 3), " = copy(") == 0);
  CHECK(fake.problem() == "");
}

TEST_CASE("a weight that changes is copied again", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  {
    const MatmulPrecisionGuard tf32(Precision::tf32);
    const Options here{.device = cuda(0)};
    Tensor weight = empty({513, 513}, here);
    auto step = compile(
        [weight](const std::vector<Tensor>& a) mutable {
          const Tensor before = matmul(a[0], weight);
          weight *= 0.5;
          return std::vector{before, matmul(a[0], weight)};
        },
        {.mode = Mode::fused, .fallback = OnFallback::refuse});
    step(std::vector<Tensor>{empty({512, 513}, here)});
    const std::string text = step.graph_text();
    INFO(text);
    CHECK(count(text, "[513, 513] by [516, 1] = copy(") == 1);
    CHECK(count(text, "fused[mul, copy](captured") == 1);  // by the kernel that changes it
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("factors of up to four dimensions are copied with aligned rows", "[fuse]") {
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  const auto copies = [](const Dims& batch, DType dtype, Device device) {
    Dims a(batch), b(batch);
    for (const std::int64_t size : {512, 513}) a.push_back(size);
    for (const std::int64_t size : {513, 770}) b.push_back(size);
    return copies_for_tiles({a, contiguous_strides(a)}, {b, contiguous_strides(b)}, dtype, device);
  };
  constexpr FactorCopies kBoth = {FactorCopy::padded, FactorCopy::padded};
  CHECK(copies({}, bf16, cuda(0)) == kBoth);
  CHECK(copies({3}, bf16, cuda(0)) == kBoth);
  CHECK(copies({3, 2}, f16, cuda(0)) == kBoth);
  CHECK(copies({3, 2, 2}, f16, cuda(0)) == kNone);  // tiles have two dimensions of batches
  CHECK(copies({}, f64, cuda(0)) == kNone);
  CHECK(copies({}, bf16, cpu) == kNone);
  // A factor that a batch shares would be stored once for each of its matrices.
  const FactorLayout shared{{3, 513, 770}, {0, 770, 1}}, own{{3, 512, 513}, {512 * 513, 513, 1}};
  CHECK(copies_for_tiles(own, shared, bf16, cuda(0)) == kNone);
}

}  // namespace brrr::test
