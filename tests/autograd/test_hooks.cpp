// Hooks, and retained gradients of inner values.
#include <brrr/brrr.h>

#include "tests/harness/catch.h"
#include "tests/harness/doubles.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of, test::leaf, test::Numbers, test::numbers, test::wide;

namespace {

const auto keep = [](const Tensor&) { return Tensor(); };

}  // namespace

TEST_CASE("a hook sees the whole gradient, once in a backward", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  std::vector<Numbers> of_leaf, of_inner;
  register_hook(x, [&](const Tensor& g) {
    of_leaf.push_back(numbers(g));
    return Tensor();
  });
  register_hook(y, [&](const Tensor& g) {
    of_inner.push_back(numbers(g));
    return Tensor();
  });
  const Tensor top = sum(y * 3 + y * y + x);
  backward(top, {.retain_graph = true});
  CHECK(of_inner == std::vector<Numbers>{{7, 11}});
  CHECK(of_leaf == std::vector<Numbers>{{15, 23}});
  CHECK(numbers(grad(x)) == Numbers{15, 23});
  // The gradient of this backward, not what the leaf has collected.
  backward(top);
  CHECK(of_leaf.size() == 2);
  CHECK(of_leaf[1] == Numbers{15, 23});
  CHECK(numbers(grad(x)) == Numbers{30, 46});
}

TEST_CASE("a hook that adds hooks", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  int old = 0, added = 0;
  const auto add_hook = [&](const Tensor&) {
    ++old;
    register_hook(y, [&](const Tensor&) {
      ++added;
      return Tensor();
    });
    return Tensor();
  };
  constexpr int kMany = 64;
  for (int i = 0; i < kMany; ++i) register_hook(y, add_hook);
  backward(sum(y), {.retain_graph = true});
  CHECK((old == kMany && added == 0));
  backward(sum(y));
  CHECK((old == 2 * kMany && added == kMany));
}

TEST_CASE("a hook may replace the gradient, and the next hook sees that", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor y = x * w;
  register_hook(y, [](const Tensor& g) { return g * 10; });
  register_hook(y, [](const Tensor& g) { return g + 1; });
  register_hook(x, [](const Tensor& g) { return g * 2; });
  register_hook(x, keep);
  backward(sum(y));
  CHECK(numbers(grad(x)) == Numbers{66, 88});
  CHECK(numbers(grad(w)) == Numbers{11, 22});
}

TEST_CASE("grad sees hooks' replacements", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  register_hook(y, [](const Tensor& g) { return g * 10; });
  register_hook(x, [](const Tensor& g) { return g + 1; });
  const auto gradients = grad(sum(y), {x, y});
  CHECK(numbers(gradients[1]) == Numbers{10, 10});
  CHECK(numbers(gradients[0]) == Numbers{21, 21});
}

TEST_CASE("a hook that nothing reaches is not called", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2, aside = x * 3;
  int calls = 0;
  register_hook(aside, [&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  backward(sum(y));
  CHECK(calls == 0);
}

TEST_CASE("a hook's replacement is recorded with the gradients", "[autograd][hooks]") {
  const Tensor x = leaf({3});
  const Tensor y = x * x;
  register_hook(y, [&](const Tensor& g) { return g * x; });
  const Tensor first = grad(y, x, {.create_graph = true});  // x * 2 x
  CHECK(item(first) == 18);
  CHECK(item(grad(first, x)) == 12);
}

TEST_CASE("inner values keep their gradients when asked to", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2, z = y * 3;
  retain_grad(y);
  retain_grad(y);  // again changes nothing
  retain_grad(x);  // nor for a leaf
  backward(sum(z * z));
  CHECK(numbers(grad(y)) == Numbers{36, 72});
  CHECK(numbers(grad(x)) == Numbers{72, 144});
  CHECK_FALSE(grad(z).defined());
}

TEST_CASE("a kept gradient is that of what was written in place last", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 1;
  retain_grad(y);
  mul_(y, 5);
  backward(sum(y));
  CHECK(numbers(grad(y)) == Numbers{1, 1});
  CHECK(numbers(grad(x)) == Numbers{5, 5});
}

TEST_CASE("a kept gradient is the one after all hooks", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  retain_grad(y);
  register_hook(y, [](const Tensor& g) { return g * 5; });
  backward(sum(y));
  CHECK(numbers(grad(y)) == Numbers{5, 5});
  CHECK(numbers(grad(x)) == Numbers{10, 10});
}

TEST_CASE("grad keeps no gradient of an inner value", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  retain_grad(y);
  grad(sum(y), x);
  CHECK_FALSE(grad(y).defined());
}

TEST_CASE("a hook may run another backward", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2}), w = leaf({5, 6});
  const Tensor y = x * 2;
  Numbers inside;
  register_hook(y, [&](const Tensor& g) {
    const EnableGrad recording;
    backward(sum(w * detach(g)));
    inside = numbers(grad(sum(square(x)), x));
    return Tensor();
  });
  backward(sum(y * w) + sum(x));
  CHECK(inside == Numbers{2, 4});
  CHECK(numbers(grad(x)) == Numbers{11, 13});        // of the outer one alone
  CHECK(numbers(grad(w)) == Numbers{2 + 5, 4 + 6});  // of both
}

TEST_CASE("a backward within a backward, over the same graph", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = exp(x), top = sum(y * y);
  Numbers inside;
  bool once = false;
  register_hook(y, [&](const Tensor&) {
    if (!std::exchange(once, true)) inside = numbers(grad(top, x, {.retain_graph = true}));
    return Tensor();
  });
  backward(top, {.retain_graph = true});
  CHECK(inside == numbers(grad(x)));
  const Numbers first = inside;
  backward(top);
  CHECK(numbers(grad(x)) == Numbers{2 * first[0], 2 * first[1]});
}

TEST_CASE("a hook's captures are freed with the graph", "[autograd][hooks]") {
  const auto token = std::make_shared<int>(0);
  const Tensor x = leaf({1, 2});
  {
    const Tensor y = x * 2;
    register_hook(y, [token](const Tensor&) { return Tensor(); });
    CHECK(token.use_count() == 2);
  }
  CHECK(token.use_count() == 1);
}

TEST_CASE("a hook's gradient must be like the one that it replaces", "[autograd][hooks]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  register_hook(y, [](const Tensor&) { return ones({3}, {f64, cpu}); });
  CHECK_THAT(error_of([&] { backward(sum(y)); }),
             Catch::Contains("[backward] a hook was expected to return a gradient like f64[2], "
                             "got f64[3]"));
  CHECK_FALSE(grad(x).defined());
  const Tensor w = leaf({1, 2});
  register_hook(w, [](const Tensor& g) { return cast(g, f32); });
  CHECK_THAT(error_of([&] { backward(sum(w * 2)); }),
             Catch::Contains("return a gradient like f64[2], got f32[2]"));
  CHECK_FALSE(grad(w).defined());
}

TEST_CASE("hooks and kept gradients of constants are refused", "[autograd][hooks]") {
  const Tensor constant = wide({1});
  CHECK_THAT(error_of([&] { register_hook(constant, keep); }),
             Catch::Contains("[register_hook] expected a tensor that requires a gradient, got "
                             "f64[1]"));
  CHECK_THAT(
      error_of([&] { retain_grad(constant); }),
      Catch::Contains("[retain_grad] expected a tensor that requires a gradient, got f64[1]"));
  CHECK_THAT(error_of([&] { register_hook(leaf({1}), {}); }),
             Catch::Contains("[register_hook] expected a function, got none"));
  CHECK_THAT(error_of([&] { retain_grad(Tensor()); }),
             Catch::Contains("[retain_grad] expected a tensor, got an undefined one"));
}
