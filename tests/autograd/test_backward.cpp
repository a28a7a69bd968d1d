// Contracts of backward and grad: accumulation, leaves, the tape's lifetime, several outputs,
// second order. Values are PyTorch's.
#include <brrr/brrr.h>

#include <cmath>

#include "tests/harness/catch.h"
#include "tests/harness/doubles.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of, test::leaf, test::Numbers, test::numbers, test::wide;

namespace {

const Options kWide{f64, cpu};

}  // namespace

TEST_CASE("gradients of a chain, a branch and a broadcast", "[autograd]") {
  Tensor w = requires_grad_(tensor({1, 2, 3}));
  backward(sum(square(w)));
  CHECK(to_vector<float>(grad(w)) == std::vector<float>{2, 4, 6});
  backward(sum(w * 3 + w));
  CHECK(to_vector<float>(grad(w)) == std::vector<float>{6, 8, 10});
  zero_grad(w);
  CHECK_FALSE(grad(w).defined());
  const Tensor x = ones({4, 3});
  backward(sum(x * w));
  CHECK(to_vector<float>(grad(w)) == std::vector<float>{4, 4, 4});
}

TEST_CASE("gradcheck of a small network", "[autograd]") {
  manual_seed(1);
  Tensor w = requires_grad_(randn({4, 3}, kWide)), b = requires_grad_(randn({4}, kWide)),
         x = requires_grad_(randn({5, 3}, kWide));
  const auto network = [](std::span<const Tensor> in) {
    return std::vector<Tensor>{mean(square(gelu_tanh(linear(in[2], in[0], in[1]))))};
  };
  const GradcheckResult result = gradcheck(network, {w, b, x}, {.second_order = true});
  INFO(result.message);
  CHECK(result);
}

TEST_CASE("gradcheck finds a wrong gradient", "[autograd]") {
  const Tensor x = leaf({0.3, -0.7});
  // Half of the dependence is hidden from the tape.
  const auto hidden = [](const Tensor& v) { return v * detach(v); };
  for (const bool directional : {false, true}) {
    const GradcheckResult result = gradcheck(hidden, x, {.directional = directional});
    CHECK_FALSE(result);
    CHECK_THAT(result.message, Catch::Contains("the gradient is"));
    CHECK_THAT(result.message, Catch::Contains("input 0"));
  }
  // x^2, whose gradient is right and a constant.
  const auto flat = [](const Tensor& v) { return v * detach(v) * 2 - square(detach(v)); };
  CHECK(gradcheck(flat, x));
  CHECK(gradcheck(hidden, x, {.atol = 1}));  // tolerated
  for (const bool directional : {false, true}) {
    const GradcheckResult result =
        gradcheck(flat, x, {.second_order = true, .directional = directional});
    CHECK_FALSE(result);
    CHECK_THAT(result.message, Catch::StartsWith("second order: "));
  }
  CHECK_THAT(error_of([&] { gradcheck(hidden, requires_grad_(ones({2}))); }),
             Catch::Contains("[gradcheck] expected inputs in f64, got input 0, f32[2]"));
  CHECK_THAT(error_of([&] { gradcheck(hidden, wide({1})); }),
             Catch::Contains("[gradcheck] expected an input that requires a gradient, got none"));
}

TEST_CASE("who requires a gradient, and who is a leaf", "[autograd]") {
  Tensor x = wide({1, 2});
  CHECK_FALSE(requires_grad(x));
  CHECK(is_leaf(x));
  requires_grad_(x);
  CHECK(requires_grad(x));
  CHECK(is_leaf(x));
  const Tensor y = x * 2;
  CHECK(requires_grad(y));
  CHECK_FALSE(is_leaf(y));
  CHECK(is_leaf(wide({1}) * 2));
  CHECK_FALSE(requires_grad(wide({1}) * 2));
  CHECK_FALSE(grad(x).defined());
  CHECK_FALSE(grad(y).defined());
  const Tensor constant = detach(y);
  CHECK_FALSE(requires_grad(constant));
  CHECK(is_leaf(constant));
  CHECK(constant.shares_storage_with(y));
  // Asking again changes nothing; taking it back makes a constant.
  Tensor same = y;
  requires_grad_(same);
  CHECK_FALSE(is_leaf(y));
  requires_grad_(x, false);
  CHECK_FALSE(requires_grad(x * 2));
}

TEST_CASE("a leaf made constant is passed over by a backward that comes later", "[autograd]") {
  Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor y = sum(x * w);
  requires_grad_(x, false);
  backward(y);
  CHECK(numbers(grad(w)) == Numbers{1, 2});
  CHECK_FALSE(grad(x).defined());
  requires_grad_(x);
  backward(sum(x * 3));
  CHECK(numbers(grad(x)) == Numbers{3, 3});
}

TEST_CASE("gradients accumulate until they are forgotten", "[autograd]") {
  Tensor x = leaf({1, 2});
  backward(sum(x * 2));
  const Tensor first = grad(x);
  backward(sum(x * 3));
  CHECK(numbers(grad(x)) == Numbers{5, 5});
  CHECK(numbers(first) == Numbers{2, 2});  // a handle that was taken keeps its values
  zero_grad(x);
  CHECK_FALSE(grad(x).defined());
  set_grad(x, wide({7, 8}));
  backward(sum(x));
  CHECK(numbers(grad(x)) == Numbers{8, 9});
}

TEST_CASE("gradients share memory with nobody", "[autograd]") {
  Tensor a = leaf({1, 2}), b = leaf({3, 4});
  const Tensor seed = wide({1, 1});
  backward(a + b, seed);
  Tensor of_a = grad(a);
  mul_(of_a, 10);
  CHECK(numbers(grad(b)) == Numbers{1, 1});
  CHECK(numbers(seed) == Numbers{1, 1});
  // The gradient of a leaf itself is the one that was given, copied.
  Tensor c = leaf({1, 2});
  backward(c, seed);
  Tensor of_c = grad(c);
  mul_(of_c, 10);
  CHECK(numbers(seed) == Numbers{1, 1});
  // A sum's gradient is one number everywhere; the leaf's is a tensor that can be written to.
  Tensor d = leaf({1, 2, 3});
  backward(sum(d));
  Tensor of_d = grad(d);
  CHECK(of_d.is_contiguous());
  add_(of_d, wide({1, 2, 3}));
  CHECK(numbers(of_d) == Numbers{2, 3, 4});
}

TEST_CASE("gradients that were recorded share memory with nobody", "[autograd]") {
  Tensor a = leaf({1, 2}), b = leaf({3, 4});
  const Tensor seed = wide({1, 1});
  backward(a + b, seed, {.create_graph = true});
  Tensor of_a = grad(a);
  no_grad([&] { return mul_(of_a, 10); });
  CHECK(numbers(grad(b)) == Numbers{1, 1});
  CHECK(numbers(seed) == Numbers{1, 1});
  // A copy is on the tape as what it was copied from.
  backward(sum(square(a)) + sum(b), {.create_graph = true});
  CHECK(numbers(grad(sum(grad(a)), a)) == Numbers{2, 2});
}

TEST_CASE("a second backward needs a graph that was retained", "[autograd]") {
  Tensor x = leaf({1, 2});
  const Tensor y = sum(exp(x));
  backward(y, {.retain_graph = true});
  backward(y, {.retain_graph = true});
  CHECK(grad(x).defined());
  CHECK(numbers(grad(x))[0] == Approx(2 * std::exp(1.0)));
  CHECK(numbers(grad(x))[1] == Approx(2 * std::exp(2.0)));
  backward(y);
  CHECK_THAT(error_of([&] { backward(y); }),
             Catch::Contains("[backward] sum has been run by an earlier backward") &&
                 Catch::Contains("retain_graph"));
  // And so it is where only a part was run.
  const Tensor inner = exp(x), one = sum(inner), other = sum(inner * 2);
  backward(one);
  const Numbers before = numbers(grad(x));
  CHECK_THAT(error_of([&] { backward(other); }),
             Catch::Contains("[backward] exp has been run by an earlier backward"));
  CHECK(numbers(grad(x)) == before);
  // create_graph retains the tape by default.
  zero_grad(x);
  const Tensor z = sum(x * x);
  grad(z, x, {.create_graph = true});
  grad(z, x, {.create_graph = true, .retain_graph = false});
  CHECK_THAT(error_of([&] { grad(z, x); }), Catch::Contains("has been run by an earlier backward"));
}

TEST_CASE("grad passes no part of a graph by that was run", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const Tensor inner = exp(x), outer = inner * 3;
  backward(sum(inner));
  const Tensor top = sum(outer) + sum(x);
  CHECK_THAT(error_of([&] { grad(top, x, {.retain_graph = true}); }),
             Catch::Contains("[backward] exp has been run by an earlier backward"));
  CHECK_THAT(error_of([&] {
               grad(top, {x, inner}, {.retain_graph = true});
             }),
             Catch::Contains("[backward] exp has been run by an earlier backward"));
  // Nodes after it are not affected.
  const auto gradients = grad(top, {inner, outer});
  CHECK(numbers(gradients[0]) == Numbers{3, 3});
  CHECK(numbers(gradients[1]) == Numbers{1, 1});
}

TEST_CASE("nothing is recorded under no_grad, and again inside of EnableGrad", "[autograd]") {
  const Tensor x = leaf({1, 2});
  CHECK(grad_enabled());
  const Tensor y = no_grad([&] {
    CHECK_FALSE(grad_enabled());
    const EnableGrad recording;
    CHECK(grad_enabled());
    const Tensor z = x * 3;
    CHECK(requires_grad(z));
    {
      const NoGrad constant;
      CHECK_FALSE(requires_grad(x * 3));
    }
    CHECK(grad_enabled());
    return z;
  });
  CHECK(grad_enabled());
  CHECK(numbers(grad(sum(y), x)) == Numbers{3, 3});
  CHECK_FALSE(requires_grad(no_grad([&] { return x * 3; })));
  CHECK(requires_grad(x));
  // A backward runs whatever the caller's state, and leaves it.
  const Tensor top = sum(x * x);
  no_grad([&] { backward(top); });
  CHECK(numbers(grad(x)) == Numbers{2, 4});
  CHECK(grad_enabled());
  // A throw restores it.
  CHECK_THROWS(no_grad([&]() -> Tensor { throw std::runtime_error("out"); }));
  CHECK(grad_enabled());
}

TEST_CASE("detach stops the gradient", "[autograd]") {
  const Tensor x = leaf({2, 3});
  CHECK(numbers(grad(sum(x * detach(x)), x)) == Numbers{2, 3});
  CHECK(numbers(grad(sum(x * x), x)) == Numbers{4, 6});
}

TEST_CASE("grad gives gradients and leaves those of leaves alone", "[autograd]") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  backward(sum(x * w));
  const Tensor y = x * w;
  const auto gradients = grad(sum(square(y)), {x, w, y});
  CHECK(numbers(gradients[0]) == Numbers{18, 64});  // 2 y w
  CHECK(numbers(gradients[1]) == Numbers{6, 32});   // 2 y x
  CHECK(numbers(gradients[2]) == Numbers{6, 16});   // 2 y
  CHECK(numbers(grad(x)) == Numbers{3, 4});
  CHECK(numbers(grad(w)) == Numbers{1, 2});
}

TEST_CASE("inputs may be inner values, and stand between others", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const Tensor a = x * 2, b = exp(a), c = sum(b * a);
  const auto gradients = grad(c, {a, x, b, a});
  const Numbers of_a = {std::exp(2.0) * 3, std::exp(4.0) * 5};
  for (int i = 0; i < 2; ++i) {
    CHECK(numbers(gradients[0])[i] == Approx(of_a[i]));
    CHECK(numbers(gradients[1])[i] == Approx(2 * of_a[i]));
    CHECK(numbers(gradients[2])[i] == Approx(2.0 * (i + 1)));
    CHECK(numbers(gradients[3])[i] == Approx(of_a[i]));
  }
  // An output is its own input.
  const Tensor y = sum(x);
  CHECK(item(grad(y, y)) == 1);
  CHECK(numbers(grad(x, x, {.gradients = {wide({5, 6})}})) == Numbers{5, 6});
}

TEST_CASE("several outputs, with gradients or ones", "[autograd]") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor a = x * x, b = x * w;
  const std::vector<Tensor> outputs = {a, b}, seeds = {wide({1, 10}), wide({100, 1000})};
  backward(outputs, seeds, {.retain_graph = true});
  CHECK(numbers(grad(x)) == Numbers{302, 4040});
  CHECK(numbers(grad(w)) == Numbers{100, 2000});
  const std::vector<Tensor> inputs = {x, w};
  const auto gradients = grad(outputs, inputs, {.retain_graph = true, .gradients = seeds});
  CHECK(numbers(gradients[0]) == Numbers{302, 4040});
  CHECK(numbers(gradients[1]) == Numbers{100, 2000});
  // The same output twice counts twice.
  const std::vector<Tensor> twice = {a, a};
  CHECK(numbers(grad(twice, std::span(&x, 1), {.gradients = seeds})[0]) == Numbers{202, 4040});
  zero_grad(x);
  const std::vector<Tensor> scalars = {sum(x * 2), sum(x * 3)};
  backward(scalars, {});
  CHECK(numbers(grad(x)) == Numbers{5, 5});
}

TEST_CASE("an input that no output depends on is refused, or has no gradient", "[autograd]") {
  const Tensor x = leaf({1, 2}), unused = leaf({3, 4, 5});
  const Tensor y = sum(x), inner = exp(unused);
  for (const Tensor& input : {unused, inner}) {
    CHECK_THAT(error_of([&] {
                 grad(sum(x), {x, input});
               }),
               Catch::Contains("[grad] expected outputs that depend on every input, got input 1, "
                               "f64[3]") &&
                   Catch::Contains("allow_unused"));
    const auto gradients = grad(sum(x), {x, input}, {.allow_unused = true});
    CHECK(numbers(gradients[0]) == Numbers{1, 1});
    CHECK_FALSE(gradients[1].defined());
  }
}

TEST_CASE("a gradient that is zero everywhere is zero", "[autograd]") {
  const Tensor x = leaf({1.5, 2.5});
  CHECK(numbers(grad(sum(floor(x)), x)) == Numbers{0, 0});
  CHECK(numbers(grad(sum(sign(x) + x), x)) == Numbers{1, 1});
  CHECK(numbers(grad(sum(round(x) * x), x)) == numbers(round(detach(x))));
  // On the way to others it adds nothing.
  const Tensor w = leaf({1, 1});
  const auto gradients = grad(sum(floor(x * w) + w), {x, w});
  CHECK(numbers(gradients[0]) == Numbers{0, 0});
  CHECK(numbers(gradients[1]) == Numbers{1, 1});
}

TEST_CASE("gradients of gradients, three times over", "[autograd]") {
  const Tensor x = leaf({2});
  const Tensor y = x * x * x * x;
  const Tensor first = grad(y, x, {.create_graph = true});
  const Tensor second = grad(first, x, {.create_graph = true});
  const Tensor third = grad(second, x, {.create_graph = true});
  CHECK(item(first) == 32);
  CHECK(item(second) == 48);
  CHECK(item(third) == 48);
  CHECK(item(grad(third, x)) == 24);
  // Through an output that its own gradient reads.
  const Tensor e = exp(x * 1.0);
  const Tensor e1 = grad(e, x, {.create_graph = true}), e2 = grad(e1, x, {.create_graph = true}),
               e3 = grad(e2, x);
  CHECK(item(e1) == Approx(std::exp(2.0)));
  CHECK(item(e2) == Approx(std::exp(2.0)));
  CHECK(item(e3) == Approx(std::exp(2.0)));
}

TEST_CASE("a recorded gradient in a leaf is differentiated again", "[autograd]") {
  const Tensor x = leaf({1, 2});
  backward(sum(x * x * x), {.create_graph = true});
  const Tensor g = grad(x);
  CHECK(requires_grad(g));
  zero_grad(x);
  backward(sum(g * g));  // g = 3 x^2, so d(g^2) = 36 x^3
  CHECK(numbers(grad(x)) == Numbers{36, 288});
  CHECK_FALSE(requires_grad(grad(x)));
}

TEST_CASE("a Hessian-vector product agrees with differences", "[autograd]") {
  manual_seed(3);
  const Tensor x = requires_grad_(randn({6}, kWide)), w = randn({6, 6}, kWide),
               v = randn({6}, kWide);
  const auto f = [&](const Tensor& at) { return logsumexp(tanh(matmul(w, at)) * 3) + prod(at); };
  const Tensor first = grad(f(x), x, {.create_graph = true});
  const Numbers product = numbers(grad(sum(first * v), x));
  const double h = 1e-5;
  const auto gradient_at = [&](double step) {
    const Tensor moved = requires_grad_(detach(x) + v * step);
    return numbers(grad(f(moved), moved));
  };
  const Numbers above = gradient_at(h), below = gradient_at(-h);
  for (std::size_t i = 0; i < product.size(); ++i)
    CHECK(product[i] == Approx((above[i] - below[i]) / (2 * h)).margin(1e-7));
}

TEST_CASE("types on the way are those of the values", "[autograd]") {
  const Tensor w = requires_grad_(ones({3}, {.dtype = bf16})), x = requires_grad_(ones({3}));
  backward(sum(cast(w, f32) * x) + sum(w * x));
  CHECK(grad(w).dtype() == bf16);
  CHECK(grad(x).dtype() == f32);
  CHECK(to_vector<float>(grad(w)) == std::vector<float>{2, 2, 2});
  // Numbers of other kinds are constants.
  const Tensor n = arange(3);
  CHECK(to_vector<float>(grad(sum(x * n), x)) == std::vector<float>{0, 1, 2});
}

TEST_CASE("integers have no gradient", "[autograd]") {
  for (const DType dtype : {i32, i64, boolean}) {
    Tensor n = zeros({2}, {.dtype = dtype});
    CHECK_THAT(error_of([&] { requires_grad_(n); }),
               Catch::Contains("[requires_grad_] expected a floating dtype, got"));
    CHECK_FALSE(requires_grad(n));
  }
}

TEST_CASE("gradients where a formula alone would give none, as PyTorch has them", "[autograd]") {
  Tensor equal = requires_grad_(full({2, 3}, 5.0));
  backward(sum(brrr::std(equal, {1})));
  CHECK(to_vector<float>(grad(equal)) == std::vector<float>(6, 0.0f));
  Tensor x = requires_grad_(tensor({-1, 0, 2, std::nanf("")}));
  backward(relu(x), ones({4}));
  CHECK(to_vector<float>(grad(x)) == std::vector<float>{0, 0, 1, 1});
}
