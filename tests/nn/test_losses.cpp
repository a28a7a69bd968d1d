// Losses: values by hand and by loops, gradients by differences, extremes, and errors.
#include <limits>

#include "tests/harness/catch.h"
#include "tests/harness/nn_reference.h"

using namespace brrr;
using namespace brrr::test;

namespace {

void check_gradients(const std::function<Tensor(const Tensor&)>& loss, const Tensor& x) {
  const GradcheckResult result = gradcheck(loss, x, {.second_order = true});
  INFO(result.message);
  CHECK(result);
}

}  // namespace

TEST_CASE("nn: mse_loss", "[nn]") {
  const Tensor x = tensor({1, 2, 4}), target = tensor({1, 4, 1});
  CHECK(to_vector<float>(nn::mse_loss(x, target, nn::Reduction::none)) ==
        std::vector<float>{0, 4, 9});
  CHECK(item(nn::mse_loss(x, target, nn::Reduction::sum)) == 13);
  CHECK(item(nn::mse_loss(x, target)) == Approx(13.0 / 3));
  check_gradients(
      [](const Tensor& v) {
        return nn::mse_loss(v, pattern({2, 3}, 1));
      },
      requires_grad_(pattern({2, 3}, 0.1)));
  CHECK(error_of([&] {
          nn::mse_loss(x, zeros({3, 1}));
        }) == "[mse_loss] expected a target like the input f32[3], got f32[3, 1]");
  CHECK(error_of([&] { nn::mse_loss(Tensor(), x); }) ==
        "[mse_loss] expected input of a floating type, got an undefined tensor");
}

TEST_CASE("nn: cross_entropy", "[nn]") {
  const Tensor x = pattern({2, 3, 5}, 0.1) * 4;
  const std::vector<std::int64_t> classes = {4, 0, 2, 2, 1, 3};
  const Tensor target = tensor(classes, {2, 3});
  std::vector<double> expected, smoothed;
  const std::vector<double> v = to_vector<double>(x);
  for (std::size_t r = 0; r < 6; ++r) {
    double total = 0, all = 0;
    for (std::size_t c = 0; c < 5; ++c) total += std::exp(v[r * 5 + c]);
    for (std::size_t c = 0; c < 5; ++c) all += std::log(total) - v[r * 5 + c];
    expected.push_back(std::log(total) - v[r * 5 + static_cast<std::size_t>(classes[r])]);
    smoothed.push_back(0.8 * expected.back() + 0.2 / 5 * all);
  }
  using nn::Reduction;
  CHECK(difference_from(nn::cross_entropy(x, target, Reduction::none), {2, 3}, expected) == "");
  CHECK(difference_from(nn::cross_entropy(x, target, Reduction::none, 0.2), {2, 3}, smoothed) ==
        "");
  double sum = 0;
  for (const double loss : expected) sum += loss;
  CHECK(item(nn::cross_entropy(x, target, Reduction::sum)) == Approx(sum));
  CHECK(item(nn::cross_entropy(x, target)) == Approx(sum / 6));

  SECTION("one row of i32") {
    const Tensor row = tensor({0, 0}), first = scalar_tensor(0, {i32, cpu});
    CHECK(item(nn::cross_entropy(row, first)) == Approx(std::log(2)));
  }
  SECTION("gradients") {
    for (const double smoothing : {0.0, 0.2}) {
      check_gradients(
          [&](const Tensor& l) { return nn::cross_entropy(l, target, Reduction::mean, smoothing); },
          requires_grad_(clone(x)));
    }
  }
  SECTION("large logits neither overflow nor lose the loss") {
    const Tensor large = requires_grad_(tensor(std::vector<float>{1e4f, -1e4f, 88, 100}, {2, 2}));
    const Tensor losses =
        nn::cross_entropy(large, tensor(std::vector<std::int64_t>{1, 1}, {2}), Reduction::none);
    CHECK(to_vector<float>(losses)[0] == 2e4f);
    CHECK(to_vector<float>(losses)[1] == Approx(std::log1p(std::exp(-12.0))).margin(1e-5));
    backward(nn::cross_entropy(large, tensor(std::vector<std::int64_t>{1, 1}, {2})));
    CHECK(item(all(isfinite(grad(large)))) == 1);
  }
  SECTION("16-bit logits are rounded once") {
    for (const DType dtype : {f16, bf16}) {
      const Tensor half = to(x, dtype);
      const Tensor loss = nn::cross_entropy(half, target);
      CHECK(loss.dtype() == dtype);
      CHECK(item(loss) == item(to(nn::cross_entropy(to(half, f32), target), dtype)));
    }
  }
}

TEST_CASE("nn: cross_entropy refuses targets and smoothing that do not fit", "[nn]") {
  const Tensor x = pattern({2, 3, 5}, 0.1) * 4;
  const std::vector<std::int64_t> classes = {4, 0, 2, 2, 1, 3};
  const Tensor target = tensor(classes, {2, 3});
  using nn::Reduction;
  CHECK(error_of([&] { nn::cross_entropy(x, to(target, f64)); }) ==
        "[cross_entropy] expected logits [..., classes] and targets of integers [...], got "
        "f64[2, 3, 5] and f64[2, 3]");
  CHECK(error_of([&] { nn::cross_entropy(x, tensor(classes, {6})); }) ==
        "[cross_entropy] expected logits [..., classes] and targets of integers [...], got "
        "f64[2, 3, 5] and i64[6]");
  CHECK_FALSE(error_of([&] { nn::cross_entropy(x, target, Reduction::mean, 1.5); }).empty());
  CHECK_FALSE(error_of([&] { nn::cross_entropy(x, target + 1); }).empty());  // 5 is no class
}

TEST_CASE("nn: binary_cross_entropy_with_logits", "[nn]") {
  const Tensor x = pattern({2, 3}, 0.1) * 6, target = pattern({2, 3}, 1) + 0.5;
  const std::vector<double> v = to_vector<double>(x), t = to_vector<double>(target);
  std::vector<double> expected;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const double p = 1 / (1 + std::exp(-v[i]));
    expected.push_back(-(t[i] * std::log(p) + (1 - t[i]) * std::log(1 - p)));
  }
  CHECK(difference_from(nn::binary_cross_entropy_with_logits(x, target, nn::Reduction::none),
                        {2, 3}, expected) == "");
  check_gradients([&](const Tensor& l) { return nn::binary_cross_entropy_with_logits(l, target); },
                  requires_grad_(clone(x)));
  const Tensor sure = tensor({500, -500, 500}), truth = tensor({1, 0, 0});
  CHECK(to_vector<float>(nn::binary_cross_entropy_with_logits(sure, truth, nn::Reduction::none)) ==
        std::vector<float>{0, 0, 500});
  CHECK(error_of([&] {
          nn::binary_cross_entropy_with_logits(x, zeros({2, 3}));
        }) ==
        "[binary_cross_entropy_with_logits] expected a target like the logits f64[2, 3], got "
        "f32[2, 3]");
}
