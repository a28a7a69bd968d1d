// Which chains of calls become fused attention. Nothing here needs a GPU.
#include <set>

#include "brrr/graph/remat.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/matmul.h"
#include "brrr/ops/random_state.h"
#include "brrr/tensor/cuda_api.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/attention_programs.h"
#include "tests/harness/catch.h"
#include "tests/harness/cubin.h"
#include "tests/harness/kernel_sources.h"
#include "tests/harness/skip.h"

namespace brrr::test {
namespace {

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

std::string graph_of(const Function& function, std::vector<Tensor> arguments,
                     Mode mode = Mode::fused) {
  auto step = compile(function, {.mode = mode, .fallback = OnFallback::refuse});
  step(arguments);
  return step.graph_text();
}

int count(const std::string& text, const std::string& what) {
  int found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

std::vector<Tensor> heads(const Dims& shape, DType dtype = bf16, int number = 3) {
  std::vector<Tensor> all;
  for (int i = 0; i < number; ++i) all.push_back(empty(shape, {.dtype = dtype, .device = cuda(0)}));
  return all;
}
// The arguments of a case, without values.
std::vector<Tensor> placeholders(const AttentionCase& c) {
  std::vector<Tensor> all;
  for (const Tensor& x : c.arguments(cpu))
    all.push_back(empty(Dims(x.shape()), {.dtype = x.dtype(), .device = cuda(0)}));
  return all;
}

Tensor attention(const std::vector<Tensor>& a) {
  return matmul(softmax(matmul(a[0], transpose(a[1], -2, -1)), -1), a[2]);
}

}  // namespace

TEST_CASE("attention in its usual forms is one call forward and one backward",
          "[fuse][attention]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  const MatmulPrecisionGuard tf32(Precision::tf32);
  for (const AttentionCase& c : attention_cases()) {
    INFO(c.name());
    const std::string text =
        graph_of([&](const std::vector<Tensor>& a) { return attend(c, a); }, placeholders(c));
    CHECK(count(text, " = fused_attention(") == 1);
    CHECK(count(text, " = fused_attention_gradient(") == int{c.has_gradient});
    CHECK(count(text, "exp(") + count(text, "exp,") + count(text, "exp]") == 0);
    CHECK(count(text, "matmul(") == 0);
    // The product with the result's gradient, and of a multiple of the query its gradient's factor,
    // unless it is stored as a part.
    const bool packs = c.packing != Packing::none;
    CHECK(count(text, "fused[mul](") + count(text, " = mul(") ==
          c.has_gradient * (1 + (c.query_scale != 1 && !packs)));
    CHECK(count(text, "unslice") == 0);
  }
  CHECK(fake.problem() == "");
}

namespace {

// Whether the gradients of attention over parts of one tensor are stored there: `function` is given
// the parts of a tensor [2, 64, 3, 2, 64], or of as many as `parts`.
using OfParts = std::function<Tensor(const std::vector<Tensor>&)>;
bool are_stored_as_parts(const OfParts& function, std::int64_t parts = 3) {
  const Options here{.dtype = bf16, .device = cuda(0)};
  const std::string text = graph_of(
      [&](const std::vector<Tensor>& a) {
        const Tensor leaf = requires_grad_(detach(a[0]));
        const Tensor by_part = permute(leaf, {2, 0, 3, 1, 4});
        std::vector<Tensor> all;
        for (std::int64_t i = 0; i < parts; ++i) all.push_back(select(by_part, 0, i));
        const Tensor out = function(all);
        return std::vector{detach(out), grad(sum(out * a[1]), {leaf})[0]};
      },
      {empty({2, 64, parts, 2, 64}, here), empty({2, 2, 64, 64}, here)});
  CHECK(count(text, " = fused_attention_gradient(") == 1);
  return count(text, "unslice") == 0;
}

}  // namespace

TEST_CASE("gradients of an attention are stored as parts where they are all of one tensor",
          "[fuse][attention]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  CHECK(are_stored_as_parts(attention));
  CHECK(are_stored_as_parts([](const std::vector<Tensor>& a) {
    return attention({a[2], a[0] * 1.0, a[1]});
  }));
  // Divided, as 1 / sqrt(width) is often written.
  CHECK(are_stored_as_parts([](const std::vector<Tensor>& a) {
    return attention({a[0] / 8.0, a[1], a[2]});
  }));
  // A multiple of the key; a part that is read once more, or twice; a part that nothing reads.
  CHECK_FALSE(are_stored_as_parts([](const std::vector<Tensor>& a) {
    return attention({a[0], a[1] * 3.0, a[2]});
  }));
  CHECK_FALSE(
      are_stored_as_parts([](const std::vector<Tensor>& a) { return attention(a) + a[2] * 2.0; }));
  CHECK_FALSE(are_stored_as_parts(
      [](const std::vector<Tensor>& a) {
        return attention({a[0], a[1], a[1]});
      },
      2));
  CHECK_FALSE(are_stored_as_parts(attention, 4));
  release_random_state();
  CHECK(fake.problem() == "");
}

namespace {

bool is_fused(const Function& function, std::vector<Tensor> arguments, Mode mode = Mode::fused) {
  return count(graph_of(function, std::move(arguments), mode), "fused_attention(") > 0;
}

std::vector<Tensor> plain(const std::vector<Tensor>& a) { return {attention(a)}; }

}  // namespace

TEST_CASE("attention is not fused where its kernel would compute something else",
          "[fuse][attention]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  const Dims shape = {2, 2, 64, 64};
  CHECK(is_fused(plain, heads(shape)));
  // Products of f32 keep their bits unless TF32 is asked for, and a graph those of eager calls.
  CHECK_FALSE(is_fused(plain, heads(shape, f32)));
  {
    const MatmulPrecisionGuard tf32(Precision::tf32);
    CHECK(is_fused(plain, heads(shape, f32)));
    CHECK_FALSE(is_fused(plain, heads(shape, f32), Mode::graph));
  }
  CHECK_FALSE(is_fused(plain, heads({2, 2, 64, 40})));  // no width that the kernels have
  CHECK_FALSE(is_fused(plain, heads({2, 2, 64, 256})));
  CHECK_FALSE(is_fused(plain, heads({2, 2, 2, 64, 64})));  // three batch dimensions
  // Somebody reads the weights, or the scores.
  const auto weights_of = [](const std::vector<Tensor>& a) {
    return softmax(matmul(a[0], transpose(a[1], -2, -1)), -1);
  };
  CHECK_FALSE(is_fused(
      [&](const std::vector<Tensor>& a) {
        const Tensor w = weights_of(a);
        return std::vector{matmul(w, a[2]), w};
      },
      heads(shape)));
  CHECK_FALSE(is_fused(
      [&](const std::vector<Tensor>& a) {
        const Tensor w = weights_of(a);
        remat::save(w);
        return std::vector{matmul(w, a[2])};
      },
      heads(shape)));
  CHECK_FALSE(is_fused(
      [&](const std::vector<Tensor>& a) {
        return std::vector{matmul(dropout(weights_of(a), 0.5), a[2])};
      },
      heads(shape)));
  release_random_state();
  CHECK(fake.problem() == "");
}

TEST_CASE("attention is not fused where its steps or its operands differ", "[fuse][attention]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  const Dims shape = {2, 2, 64, 64};
  // A softmax over queries, a factor that turns the order around, a mask of another number.
  CHECK_FALSE(is_fused(
      [](const std::vector<Tensor>& a) {
        return std::vector{matmul(softmax(matmul(a[0], transpose(a[1], -2, -1)), -2), a[2])};
      },
      heads(shape)));
  for (const double factor : {-1.0, 0.0}) {
    CHECK_FALSE(is_fused(
        [&](const std::vector<Tensor>& a) {
          return std::vector{
              matmul(softmax(matmul(a[0], transpose(a[1], -2, -1)) * factor, -1), a[2])};
        },
        heads(shape)));
  }
  CHECK_FALSE(is_fused(
      [](const std::vector<Tensor>& a) {
        const Tensor scores = matmul(a[0], transpose(a[1], -2, -1));
        return std::vector{matmul(softmax(where(scores > 0.0, scores, -1e9), -1), a[2])};
      },
      heads(shape)));
  // Rows that do not begin on multiples of 16 bytes.
  std::vector<Tensor> shifted = heads({2, 2, 64, 65});
  for (Tensor& x : shifted) x = narrow(x, 3, 1, 64);
  CHECK_FALSE(is_fused(plain, shifted));
  // A key that another call writes before the gradient reads it.
  CHECK_FALSE(is_fused(
      [](const std::vector<Tensor>& a) {
        const Tensor q = requires_grad_(detach(a[0])), v = requires_grad_(detach(a[2]));
        const Tensor out = attention({q, a[1], v});
        return grad(sum(out), {q, v});  // none of the keys
      },
      heads(shape)));
  release_random_state();
  CHECK(fake.problem() == "");
}

TEST_CASE("the tiles of a mask are looked at once", "[fuse][attention]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  std::string text;
  {
    const Options options{.dtype = bf16, .device = cuda(0)};
    nn::TransformerBlock one(64, 1, options, true), two(64, 1, options, true);
    text = graph_of([&](const std::vector<Tensor>& a) { return std::vector{two(one(a[0]))}; },
                    heads({2, 128, 64}, bf16, 1));
  }
  release_random_state();
  CHECK(count(text, " = fused_attention(") == 2);
  CHECK(count(text, " = fused_attention_mask(") == 1);
  CHECK(text.find("fused_attention_mask(") < text.find("forward:"));  // a constant
  CHECK(fake.problem() == "");
}

TEST_CASE("memory without scores and weights is what fused attention leaves", "[fuse][attention]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  const MatmulPrecisionGuard tf32(Precision::tf32);
  const AttentionCase c{.dtype = f32, .query = {4, 4, 512, 64}, .keys = 512};
  const auto arena = [&](Mode mode) {
    auto step = compile([&](const std::vector<Tensor>& a) { return attend(c, a); }, {.mode = mode});
    step(placeholders(c));
    return step.report().entries.at(0).arena_bytes;
  };
  const std::size_t weights = sizeof(float) * 4 * 4 * 512 * 512;
  const std::size_t without = arena(Mode::fused);
  CHECK(arena(Mode::graph) >= 2 * weights + without / 2);
  CHECK(fake.problem() == "");
}

TEST_CASE("every text of attention compiles for sm_80 and sm_90", "[fuse][attention][kernels]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  std::set<std::string> texts;
  const testing::NoDiskCache off;
  {
    testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
    const MatmulPrecisionGuard tf32(Precision::tf32);
    for (const AttentionCase& c : attention_cases())
      graph_of([&](const std::vector<Tensor>& a) { return attend(c, a); }, placeholders(c));
    for (const std::string& text : fake.compiled()) {
      if (text.find("attention") != std::string::npos) texts.insert(testing::own_text(text));
    }
  }
  CHECK(texts.size() > 12);
  for (const std::string& text : texts) {
    const bool wide = text.find("kWidth = 128") != std::string::npos;
    for (const int architecture : {80, 90}) {
      if (wide && architecture == 80) continue;  // has no kernel for that
      INFO(text.substr(0, 120) << " for sm_" << architecture);
      std::string cubin;
      CHECK_NOTHROW(cubin = jit::compile_to_cubin(text, architecture,
                                                  {.architecture_specific = architecture == 90}));
      for (const testing::KernelResources& kernel : testing::resources_of(cubin))
        // The gradient of queries spills 20 bytes for four blocks a multiprocessor and is faster so
        // (nvidia-h200-2026-11-27-attention.json).
        CHECK(kernel.local_bytes <= (wide ? 64 : 24));
    }
  }
}

}  // namespace brrr::test
