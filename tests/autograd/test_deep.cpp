// Graphs of 100,000 ops: neither backward nor the end of a graph depends on the stack.
#include <brrr/brrr.h>

#include "tests/harness/catch.h"

using namespace brrr;

namespace {

constexpr int kDeep = 100000;

Tensor leaf() { return requires_grad_(ones({2})); }

template <class Step>
Tensor chain(Tensor y, int length, Step step) {
  for (int i = 0; i < length; ++i) y = step(y);
  return y;
}

}  // namespace

TEST_CASE("a deep chain: backward, and again when retained", "[autograd][deep]") {
  const Tensor x = leaf();
  const Tensor y = sum(chain(x, kDeep, [](const Tensor& v) { return v * 1.0; }));
  backward(y, {.retain_graph = true});
  backward(y);
  CHECK(to_vector<float>(grad(x)) == std::vector<float>{2, 2});
}

TEST_CASE("a deep chain that keeps its values", "[autograd][deep]") {
  const Tensor x = leaf(), one = requires_grad_(ones({2}));
  const Tensor y = sum(chain(x, kDeep, [&](const Tensor& v) { return v * one; }));
  CHECK(saved_tensors(y).size() == 2 * kDeep);
  backward(y);
  CHECK(to_vector<float>(grad(x)) == std::vector<float>{1, 1});
  CHECK(to_vector<float>(grad(one)) == std::vector<float>{kDeep, kDeep});
}

TEST_CASE("deep graphs end without a backward", "[autograd][deep]") {
  const std::int64_t before = memory_stats(cpu).live;
  {
    const Tensor x = leaf(), one = requires_grad_(ones({2}));
    chain(x, kDeep, [](const Tensor& v) { return v * 1.0; });
    chain(x, kDeep, [&](const Tensor& v) { return v * one; });
    chain(x, kDeep, [](const Tensor& v) { return exp(v - v); });
    // Views of views, and a mixture of them with ops.
    chain(x, kDeep, [](const Tensor& v) { return view(v, {2}); });
    chain(x, kDeep / 2, [](const Tensor& v) {
      return select(transpose(view(v * v, {2, 1}), 0, 1), 0, 0);
    });
    // A ladder: each step reads the last two.
    Tensor a = x, b = x * 1.0;
    for (int i = 0; i < kDeep; ++i) a = std::exchange(b, (a + b) * 0.5);
  }
  CHECK(memory_stats(cpu).live == before);
}

TEST_CASE("a deep chain of views has its gradient", "[autograd][deep]") {
  const Tensor x = leaf();
  const Tensor y = chain(x, kDeep, [](const Tensor& v) { return view(v, {2}); });
  CHECK(y.shares_storage_with(x));
  backward(sum(y));
  CHECK(to_vector<float>(grad(x)) == std::vector<float>{1, 1});
}

TEST_CASE("a deep chain of checkpoints", "[autograd][deep]") {
  const std::int64_t before = memory_stats(cpu).live;
  {
    const Tensor x = leaf();
    const auto link = [](const Tensor& v) {
      return checkpoint([](const Tensor& u) { return u * 1.0; }, v);
    };
    chain(x, kDeep / 10, link);  // dropped
    const Tensor y = sum(chain(x, kDeep / 10, link));
    backward(y);
    CHECK(to_vector<float>(grad(x)) == std::vector<float>{1, 1});
  }
  CHECK(memory_stats(cpu).live == before);
}

TEST_CASE("grad through a deep graph, and the gradient's own graph", "[autograd][deep]") {
  const Tensor x = leaf();
  const Tensor y = sum(chain(x, kDeep, [](const Tensor& v) { return v * 1.0; }) * x);
  const Tensor first = grad(y, x, {.create_graph = true});
  CHECK(to_vector<float>(first) == std::vector<float>{2, 2});
  CHECK(to_vector<float>(grad(sum(first), x)) == std::vector<float>{2, 2});
}
