// Gradients inside of compiled functions have eager's bits.
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"

using namespace brrr;
using namespace brrr::test;

namespace {

Tensor loss_of(const Tensors& c, const Tensors& a) {
  return mean(square(tanh(matmul(a[0], transpose(c[0], 0, 1)))));
}

}  // namespace

TEST_CASE("compile: gradients of every kind have eager's bits", "[compile]") {
  check_all({
      with_leaves("grad()", [](auto& c, auto& a) { return Tensors{grad(loss_of(c, a), c[0])}; }),
      with_leaves("grad() with respect to a value on the way",
                  [](auto& c, auto& a) {
                    const Tensor inner = c[0] * a[0];
                    return Tensors{grad(sum(exp(inner)), inner), inner};
                  }),
      {"grad() of an argument that is made to require one",
       [](auto& c, auto& a) {
         const Tensor x = requires_grad_(detach(a[0]));
         return Tensors{grad(sum(square(x * c[0])), x)};
       }},
      with_leaves(
          "second order",
          [](auto& c, auto& a) {
            const Tensor g = grad(loss_of(c, a), c[0], {.create_graph = true});
            return Tensors{g, grad(sum(square(g)), c[0])};
          },
          {{3, 4}}, f64),
      with_leaves(
          "a backward through a gradient",
          [](auto& c, auto& a) {
            zero_grad(c[0]);
            const Tensor g = grad(loss_of(c, a), c[0], {.create_graph = true});
            backward(loss_of(c, a) + sum(square(g)));
            return Tensors{};
          },
          {{3, 4}}, f64),
  });
}

TEST_CASE("compile: gradients that the step reads, sets and forgets have eager's bits",
          "[compile]") {
  check_all({
      with_leaves("two backwards",
                  [](auto& c, auto& a) {
                    zero_grad(c[0]);
                    const Tensor loss = loss_of(c, a);
                    backward(loss, {.retain_graph = true});
                    backward(loss);
                    return Tensors{loss};
                  }),
      with_leaves("a gradient that is forgotten",
                  [](auto& c, auto& a) {
                    backward(loss_of(c, a));
                    zero_grad(c[0]);
                    return Tensors{};
                  }),
      with_leaves("a gradient that is set",
                  [](auto& c, auto& a) {
                    set_grad(c[0], a[0] * 2);
                    return Tensors{grad(c[0]) + 1};
                  }),
      with_leaves("a gradient that is read and written",
                  [](auto& c, auto& a) {
                    zero_grad(c[0]);
                    backward(loss_of(c, a));
                    Tensor g = grad(c[0]);
                    mul_(g, 0.5);
                    return Tensors{g + 1};
                  }),
      with_leaves("a gradient that is a result",
                  [](auto& c, auto& a) {
                    zero_grad(c[0]);
                    backward(loss_of(c, a));
                    return Tensors{grad(c[0])};
                  }),
      with_leaves("one gradient of two leaves",
                  [](auto& c, auto& a) {
                    zero_grad(c[0]);
                    zero_grad(c[1]);
                    backward(sum((c[0] + c[1]) * a[0]));
                    return Tensors{};
                  },
                  {{3, 4}, {3, 4}}),
  });
}

TEST_CASE("compile: hooks, checkpoints and updates by hand have eager's bits", "[compile]") {
  check_all({
      with_leaves("kept on the way",
                  [](auto& c, auto& a) {
                    const Tensor inner = c[0] * a[0];
                    retain_grad(inner);
                    zero_grad(c[0]);
                    backward(sum(exp(inner)));
                    return Tensors{grad(inner)};
                  }),
      with_leaves("without a tape",
                  [](auto& c, auto& a) {
                    const NoGrad constant;
                    return Tensors{c[0] * a[0]};
                  }),
      with_leaves("a checkpoint",
                  [](auto& c, auto& a) {
                    zero_grad(c[0]);
                    const auto layer = [&](const Tensor& x) {
                      return dropout(tanh(x * c[0]), 0.3);
                    };
                    const Tensor loss = sum(checkpoint(layer, checkpoint(layer, a[0] * c[0])));
                    backward(loss);
                    return Tensors{loss};
                  }),
      with_leaves("hooks",
                  [](auto& c, auto& a) {
                    zero_grad(c[0]);
                    const Tensor inner = c[0] * a[0];
                    Tensor seen;
                    register_hook(inner, [&](const Tensor& g) {
                      seen = g + 1;
                      return g * 2;
                    });
                    backward(sum(exp(inner)));
                    return Tensors{seen};
                  }),
      with_leaves("an embedding and cross entropy",
                  [](auto& c, auto& a) {
                    zero_grad(c[0]);
                    const Tensor index = cast(remainder(floor(abs(a[0] * 10)), 3), i64);
                    const Tensor loss =
                        nn::cross_entropy(embedding(c[0], index), remainder(index, 4));
                    backward(loss);
                    return Tensors{loss};
                  }),
      with_leaves("a leaf updated by hand",
                  [](auto& c, auto& a) {
                    Tensor w = c[0];
                    zero_grad(w);
                    backward(loss_of(c, a));
                    const NoGrad constant;
                    sub_(w, grad(w) * 0.1);
                    return Tensors{};
                  }),
  });
}

TEST_CASE("compile: results carry no gradient", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 1));
  auto step = compile([&](const Tensor& x) { return std::pair(w * x, select(w, 0, 1)); });
  for (int call = 0; call < 3; ++call) {
    const auto [product, part] = step(noise({3}, 2));
    CHECK_FALSE(requires_grad(product));
    CHECK_FALSE(requires_grad(part));
    CHECK(part.shares_storage_with(w));
  }
}
