// Gradients where a formula that is right elsewhere rounds to the wrong side, overflows, ties or
// meets NaN: compared with exact arithmetic and with PyTorch.
#include <cmath>
#include <limits>

#include "brrr/autograd/autograd.h"
#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/samples.h"

using namespace brrr;
using namespace brrr::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr DType kFloats[] = {f16, bf16, f32, f64};

Tensor of(const std::vector<double>& values, DType dtype, Dims shape = {}) {
  if (shape.empty()) shape = {static_cast<std::int64_t>(values.size())};
  return cast(tensor<double>(values, shape), dtype);
}
Tensor leaf(const std::vector<double>& values, DType dtype, Dims shape = {}) {
  return requires_grad_(of(values, dtype, std::move(shape)));
}
std::vector<double> values_of(const Tensor& x) { return to_vector<double>(cast(x, f64)); }

// NaN equals NaN.
bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
void check_values(const Tensor& got, const std::vector<double>& expected) {
  const std::vector<double> values = values_of(got);
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("element " << i << ": " << values[i] << ", expected " << expected[i]);
    CHECK(same(values[i], expected[i]));
  }
}

// The largest integer that is not above a / b, exactly: the remainder of a division is exact, and
// what it leaves is a multiple of b.
double floored(double a, double b) {
  const long double rest = std::fmod(static_cast<long double>(a), static_cast<long double>(b));
  const long double q = std::round((a - rest) / b);
  return static_cast<double>(rest != 0 && (rest < 0) != (b < 0) ? q - 1 : q);
}

}  // namespace

TEST_CASE("gradients: remainder's slope by the divisor is the exact quotient", "[gradients]") {
  for (const DType dtype : kFloats) {
    INFO(name_of(dtype));
    Random random(hash_text(std::string(name_of(dtype))));
    std::vector<double> a = {1, -1, 1, 6, -6, 0, 0.3, 5.5, 1},
                        b = {0.1, 0.1, -0.1, 3, 3, 2, 0.1, kInf, 3};
    // Quotients up to 2^8, 2^11, 2^18 and 2^11, half of them close to an integer.
    const double most = dtype == bf16 ? 256 : dtype == f32 ? 1 << 18 : 2048;
    for (int i = 0; i < 50'000; ++i) {
      const double divisor = random.uniform(0.01, 4) * (random.below(2) ? 1 : -1);
      const double quotient =
          std::exp2(random.uniform(-2, std::log2(most))) * (random.below(2) ? 1 : -1);
      b.push_back(divisor);
      a.push_back(random.below(2) ? quotient * divisor : std::round(quotient) * divisor);
    }
    const Tensor x = of(a, dtype), y = requires_grad_(of(b, dtype));
    const std::vector<double> xs = values_of(x), ys = values_of(y),
                              slopes = values_of(grad(sum(remainder(x, y)), y));
    std::vector<double> exact;
    for (std::size_t i = 0; i < xs.size(); ++i)
      exact.push_back(std::isinf(ys[i]) ? 0 : -floored(xs[i], ys[i]));
    const std::vector<double> expected = values_of(of(exact, dtype));
    long wrong = 0;
    for (std::size_t i = 0; i < xs.size(); ++i) {
      if (slopes[i] == expected[i]) continue;
      if (wrong++ == 0)
        CHECK("" == std::to_string(xs[i]) + " % " + std::to_string(ys[i]) + " gives " +
                        std::to_string(slopes[i]));
    }
    CHECK(wrong == 0);
  }
  const Tensor divisor = leaf({0.1, 0.3}, f32);
  check_values(grad(sum(remainder(1, divisor)), divisor), {-9, -3});
}

TEST_CASE("gradients: addcmul and addcdiv take their number in the type they compute in",
          "[gradients]") {
  for (const DType dtype : {f16, bf16}) {
    INFO(name_of(dtype));
    const Tensor a = leaf({1, 1}, dtype), b = leaf({1000, -1000}, dtype),
                 c = leaf({0.0078125, 0.25}, dtype), d = leaf({64, 128}, dtype);
    const Tensor product = addcmul(a, b, c, 128), quotient = addcdiv(a, b, d, 128);
    const Tensor want_product = of({1001, -31999}, dtype), want_quotient = of({2001, -999}, dtype);
    CHECK(product.dtype() == dtype);
    CHECK(bits_of(product) == bits_of(want_product));
    CHECK(bits_of(quotient) == bits_of(want_quotient));
    check_values(grad(sum(addcmul(a, b, c, 128)), b), {1, 32});
    check_values(grad(sum(addcmul(a, b, c, 128)), a), {1, 1});
    check_values(grad(sum(addcdiv(a, b, d, 128)), b), {2, 1});
    check_values(grad(sum(addcdiv(a, b, d, 128)), d), values_of(of({-31.25, 7.8125}, dtype)));
    // In place, and by a factor without dimensions, which does not decide the type.
    Tensor to = of({1, 1}, dtype);
    addcmul_(to, detach(b), detach(c), 128);
    CHECK(bits_of(to) == bits_of(want_product));
    to = of({1, 1}, dtype);
    addcdiv_(to, detach(b), detach(d), 128);
    CHECK(bits_of(to) == bits_of(want_quotient));
    CHECK(bits_of(addcmul(of({1}, dtype), reshape(of({1000}, dtype), {}), of({0.0078125}, dtype),
                          128)) == bits_of(of({1001}, dtype)));
  }
  // Mixed types: the product with the number is not rounded to b's.
  CHECK(bits_of(addcmul(of({1}, f32), of({1000}, f16), of({0.0078125}, f32), 128)) ==
        bits_of(of({1001}, f32)));
  CHECK(bits_of(addcmul(of({0}, f64), of({1}, f32), of({1}, f64), 0.1)) == bits_of(of({0.1}, f64)));
  // One rounding, at the end.
  Random random(5);
  for (const DType dtype : {f16, bf16}) {
    std::vector<double> columns[3];
    for (int i = 0; i < 20'000; ++i) {
      for (std::vector<double>& column : columns) column.push_back(random.uniform(0.5, 4));
    }
    const Tensor a = of(columns[0], dtype), b = of(columns[1], dtype), c = of(columns[2], dtype);
    const auto wide = [](const Tensor& x) { return cast(x, f32); };
    CHECK(bits_of(addcmul(a, b, c, 0.7)) ==
          bits_of(cast(wide(a) + wide(b) * 0.7 * wide(c), dtype)));
    CHECK(bits_of(addcdiv(a, b, c, 0.7)) ==
          bits_of(cast(wide(a) + wide(b) * 0.7 / wide(c), dtype)));
  }
}

TEST_CASE("gradients: clamp_min and clamp_max have clamp's slope at the bound", "[gradients]") {
  for (const DType dtype : kFloats) {
    const std::vector<double> values = {-1, 0.5, 2, kNaN, kInf, -kInf};
    const Tensor x = leaf(values, dtype), bound = leaf({-1, 0.5, 2.5, 0, kInf, -kInf}, dtype);
    check_values(grad(sum(clamp_min(x, 0.5)), x), {0, 1, 1, 0, 1, 0});
    check_values(grad(sum(clamp_max(x, 0.5)), x), {1, 1, 0, 0, 0, 1});
    check_values(grad(sum(clamp(x, 0.5, 3)), x), {0, 1, 1, 0, 0, 0});
    check_values(grad(sum(clamp_min(x, bound)), x), {1, 1, 0, 0, 1, 1});
    check_values(grad(sum(clamp_min(x, bound)), bound), {0, 0, 1, 0, 0, 0});
    check_values(grad(sum(clamp_max(x, bound)), x), {1, 1, 1, 0, 1, 1});
    check_values(grad(sum(clamp_max(x, bound)), bound), {0, 0, 0, 0, 0, 0});
    check_values(grad(sum(clamp(x, bound, 3)), bound), {0, 0, 1, 0, 0, 0});
    // The values are those of maximum and minimum.
    CHECK(bits_of(clamp_min(x, bound)) == bits_of(maximum(x, bound)));
    CHECK(bits_of(clamp_max(x, -0.)) == bits_of(minimum(x, -0.)));
    Tensor to = of(values, dtype);
    CHECK(bits_of(clamp_min_(to, 0.25)) == bits_of(maximum(x, 0.25)));
  }
  CHECK(to_vector<std::int64_t>(clamp_min(tensor<std::int64_t>({1, -5}), 0)) ==
        std::vector<std::int64_t>{1, 0});
  CHECK(clamp_max(tensor<std::int64_t>({1, -5}), 0.5).dtype() == f32);
}

TEST_CASE("gradients: a NaN that is the result takes the gradient", "[gradients]") {
  for (const DType dtype : kFloats) {
    const Tensor a = leaf({kNaN, 1, kNaN, 1, 2, 3}, dtype),
                 b = leaf({1, kNaN, kNaN, 2, 1, 3}, dtype);
    check_values(grad(sum(maximum(a, b)), a), {1, 1, 1, 0, 1, 0.5});
    check_values(grad(sum(maximum(a, b)), b), {1, 1, 1, 1, 0, 0.5});
    check_values(grad(sum(minimum(a, b)), a), {1, 1, 1, 1, 0, 0.5});
    check_values(grad(sum(minimum(a, b)), b), {1, 1, 1, 0, 1, 0.5});
    check_values(grad(sum(maximum(a, 1)), a), {1, 0.5, 1, 0.5, 1, 1});
    const Tensor rows = leaf({1, kNaN, 3, 4, 5, 5, kNaN, 0, kNaN}, dtype, {3, 3});
    const Tensor g = of({2, 4, 6}, dtype);
    check_values(grad(max(rows, {1}), {rows}, {.gradients = {g}})[0], {0, 2, 0, 0, 2, 2, 3, 0, 3});
    check_values(grad(min(rows, {1}), {rows}, {.gradients = {g}})[0], {0, 2, 0, 4, 0, 0, 3, 0, 3});
    const Tensor third = grad(max(rows), rows);
    check_values(third, values_of(of({0, 1. / 3, 0, 0, 0, 0, 1. / 3, 0, 1. / 3}, dtype)));
  }
}

TEST_CASE("gradients: the second derivative of a quotient keeps its infinity", "[gradients]") {
  // The slope of -g a / b^2 by b is 2 g a / b^3. In f16 1 / 65504 times a small factor is 0, which
  // must not meet an infinite quotient.
  for (const double g : {2.5, 100.}) {
    const Tensor a = leaf({kInf, kInf, -kInf, -kInf}, f16),
                 b = leaf({65504, -65504, 65504, -65504}, f16);
    const Tensor small = full({4}, 0.001, {.dtype = f16});
    const Tensor slope =
        grad(a / b, {b}, {.create_graph = true, .gradients = {full({4}, g, {.dtype = f16})}})[0];
    check_values(grad(slope, {b}, {.gradients = {small}})[0], {kInf, -kInf, -kInf, kInf});
  }
  // Extremes of f32, by the exact value: none is NaN that has a limit.
  std::vector<double> as, bs;
  for (const double a : {0., 1e-30, 1e-10, 1., 3., 1e10, 1e30, kInf}) {
    for (const double b : {0., 1e-38, 1e-30, 1e-10, 1., 3., 1e10, 1e30, 3e38, kInf}) {
      for (const int signs : {0, 1, 2, 3}) {
        as.push_back(signs & 1 ? -a : a);
        bs.push_back(signs & 2 ? -b : b);
      }
    }
  }
  const Tensor a = leaf(as, f32), b = leaf(bs, f32);
  const Tensor slope = grad(sum(a / b), b, {.create_graph = true});
  const std::vector<double> first = values_of(slope), second = values_of(grad(sum(slope), b));
  for (std::size_t i = 0; i < as.size(); ++i) {
    INFO(as[i] << " / " << bs[i]);
    CHECK(std::isnan(first[i]) == std::isnan(as[i] / bs[i]));
    CHECK(std::isnan(second[i]) == std::isnan(as[i] / bs[i]));
  }
}

TEST_CASE("compile: gradients at edges have eager's bits", "[gradients][compile]") {
  using Pair = Tensor (*)(const Tensor& a, const Tensor& b);
  const Pair functions[] = {
      [](const Tensor& a, const Tensor& b) { return remainder(a, b); },
      [](const Tensor& a, const Tensor& b) { return addcmul(a, b, a, 1000); },
      [](const Tensor& a, const Tensor& b) { return addcdiv(a, b, b, 1000); },
      [](const Tensor& a, const Tensor& b) { return clamp_min(a, b) + clamp_max(a, 0.25); },
      [](const Tensor& a, const Tensor& b) { return maximum(log(a), b) + minimum(a, log(b)); },
      [](const Tensor& a, const Tensor& b) { return max(log(a), {1}, true) + min(log(b)); },
      [](const Tensor& a, const Tensor& b) { return square(a) / b; },
  };
  for (const DType dtype : {f16, f32}) {
    std::vector<Case> cases;
    for (const Pair function : functions) {
      cases.push_back({.name = "an edge",
                       .function =
                           [function](const Tensors& captured, const Tensors& arguments) {
                             const Tensor& x = captured[0];
                             const Tensor y = function(x * 1, arguments[0] + x * 0.5);
                             const Tensor slope = grad(sum(y), x, {.create_graph = true});
                             backward(sum(square(slope)) + sum(y));
                             return Tensors{y, slope};
                           },
                       .dtype = dtype,
                       .leaves = true});
    }
    check_all(cases);
  }
}
