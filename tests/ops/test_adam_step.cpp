// adam_step: it has the bits of the equivalent chain of ops, and refuses operands that it cannot
// write.
#include "brrr/ops/formulas.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"
#include <brrr/brrr.h>

using namespace brrr;
using namespace brrr::optim;

namespace {

Tensor drawn(const Dims& shape, int number, DType dtype = f32) {
  const Tensor x = arange(0, static_cast<double>(checked_numel(shape, 8, "drawn")), {.dtype = f64});
  return cast(reshape(sin(x * (1.7 + number) + number), shape), dtype);
}

template <class T>
bool same_bits(const Tensor& a, const Tensor& b) {
  return to_vector<T>(a) == to_vector<T>(b);  // no NaN among them
}

// Parameters and state after a few steps.
std::vector<Tensor> stepped(const Transformation& t, DType dtype, std::int64_t size) {
  std::vector<Tensor> params = {drawn({size}, 0, dtype), drawn({3, 5}, 1, dtype)};
  State state = t.init(params);
  for (int step = 0; step < 4; ++step) {
    t.apply({drawn({size}, 2 + step, dtype), drawn({3, 5}, 3 + step, dtype)}, state, params);
  }
  for (const auto& [name, tensor] : state.named()) params.push_back(tensor);
  return params;
}

struct AdamOperands {
  const Tensor &param, &mean, &square, &gradient, &mean_of_ones, &square_of_ones;
};
struct AdamCoefficients {
  Operand rate, mean_weight, square_weight, eps, decay = 0;
};
operands::adam_step joined(const AdamOperands& o, const AdamCoefficients& c) {
  return {o.param, o.mean,        o.square,        o.gradient, o.mean_of_ones, o.square_of_ones,
          c.rate,  c.mean_weight, c.square_weight, c.eps,      c.decay};
}
std::array<Tensor, 3> adam_step(const AdamOperands& operands, const AdamCoefficients& numbers) {
  return brrr::adam_step(joined(operands, numbers));
}
void adam_step_(const AdamOperands& operands, const AdamCoefficients& numbers) {
  brrr::adam_step_(joined(operands, numbers));
}

// A parameter with its averages, for one step.
struct Step {
  Tensor param, mean, square, gradient;
  Tensor mean_of_ones = full({}, 0.1, {.dtype = mean.dtype()}),
         square_of_ones = full({}, 0.001, {.dtype = mean.dtype()});

  explicit Step(const Dims& shape, DType dtype = f32, DType average = f32)
      : param(drawn(shape, 0, dtype)),
        mean(drawn(shape, 1, average)),
        square(abs(drawn(shape, 2, average))),
        gradient(drawn(shape, 3, dtype)) {}
  AdamOperands operands() const {
    return {param, mean, square, gradient, mean_of_ones, square_of_ones};
  }
};
const AdamCoefficients kCoefficients{0.01, 0.1, 0.001, 1e-8, 0.1};

}  // namespace

TEST_CASE("adam and adamw have the bits of their parts", "[optim][adam]") {
  const AdamOptions odd{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3};
  const AdamOptions on_device{
      .beta1 = full({}, 0.8), .beta2 = full({}, 0.95), .eps = full({}, 1e-3)};
  const Schedule schedule = linear_schedule(0.1, 0.01, 3);
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t size : {1, 7, 1000, 100003}) {
      for (const AdamOptions& options : {AdamOptions{}, odd, on_device}) {
        for (const LearningRate& rate : std::vector<LearningRate>{0.05, schedule}) {
          const auto check = [&](const Transformation& whole, const Transformation& parts) {
            const std::vector<Tensor> a = stepped(whole, dtype, size),
                                      b = stepped(parts, dtype, size);
            REQUIRE(a.size() == b.size());
            for (std::size_t i = 0; i < a.size(); ++i) {
              INFO(a[i].describe() << " at " << i);
              const bool same =
                  dtype == f32 ? same_bits<float>(a[i], b[i]) : same_bits<double>(a[i], b[i]);
              CHECK(same);
            }
          };
          check(adam(rate, options), chain(scale_by_adam(options), scale_by_learning_rate(rate)));
          check(adamw(rate, 0.1, options), chain(scale_by_adam(options), add_decayed_weights(0.1),
                                                 scale_by_learning_rate(rate)));
        }
      }
    }
  }
}

TEST_CASE("averages of vanishing gradients become zero, not denormal", "[adam]") {
  constexpr int n = 64;
  std::vector<float> gradients;
  for (int i = 0; i < n; ++i) gradients.push_back(std::ldexp(1.37f, -2 * i));
  const Tensor gradient = tensor<float>(gradients, {n}), zero = zeros({n});
  Tensor param = ones({n}), mean = zeros({n}), square = zeros({n}), ones_mean = zeros({}),
         ones_square = zeros({});
  int means = 0, squares = 0;
  const auto step = [&](const Tensor& update, double square_weight) {
    average_ones_({ones_mean, ones_square, 0.1, square_weight});
    adam_step_({param, mean, square, update, ones_mean, ones_square},
               {.rate = 1e-3, .mean_weight = 0.1, .square_weight = square_weight, .eps = 1e-8});
    for (const Tensor& average : {mean, square}) {
      for (const float value : to_vector<float>(average))
        CHECK((value == 0 || std::fabs(value) >= std::numeric_limits<float>::min()));
    }
    means = static_cast<int>(item(sum(cast(mean > 0, i64))));
    squares = static_cast<int>(item(sum(cast(square > 0, i64))));
  };
  for (int i = 0; i < 3; ++i) step(gradient, 0.001);
  CHECK(means == 49);    // a tenth of the gradient is at least 2^-100
  CHECK(squares == 29);  // a thousandth of its square is at least 2^-125
  const std::vector<float> moved = to_vector<float>(param);
  for (int i = 0; i < n; ++i) {
    const double g = gradients[static_cast<std::size_t>(i)];
    CHECK(moved[static_cast<std::size_t>(i)] == Approx(1 - 3e-3 * g / (g + 1e-8)).epsilon(1e-6));
  }
  for (int i = 0; i < 1000; ++i) step(zero, 0.1);
  CHECK(means == 0);
  CHECK(squares == 0);
}

TEST_CASE("a step of 16 bits is computed in f32 and rounded once", "[adam]") {
  for (const DType dtype : {f16, bf16}) {
    for (const DType average : {f32, dtype}) {
      const Step narrow({5000}, dtype, average);
      const auto wide = [](const Tensor& x) { return cast(x, f32); };
      const auto [param, mean, square] = adam_step(narrow.operands(), kCoefficients);
      const auto [p, m, v] =
          adam_step({wide(narrow.param), wide(narrow.mean), wide(narrow.square),
                     wide(narrow.gradient), wide(narrow.mean_of_ones), wide(narrow.square_of_ones)},
                    kCoefficients);
      CHECK(param.dtype() == dtype);
      CHECK(mean.dtype() == average);
      CHECK(same_bits<float>(wide(param), wide(cast(p, dtype))));
      CHECK(same_bits<float>(wide(mean), wide(cast(m, average))));
      CHECK(same_bits<float>(wide(square), wide(cast(v, average))));
    }
  }
}

TEST_CASE("a step counts a version of all that it writes", "[adam]") {
  const Step in_place(40), kept(40);
  const auto [param, mean, square] = adam_step(kept.operands(), kCoefficients);
  for (const Tensor* x : {&kept.param, &kept.mean, &kept.square}) CHECK(x->version() == 0);
  adam_step_(in_place.operands(), kCoefficients);
  for (const Tensor* x : {&in_place.param, &in_place.mean, &in_place.square})
    CHECK(x->version() == 1);
  CHECK(in_place.gradient.version() == 0);
  CHECK(in_place.mean_of_ones.version() == 0);
  CHECK(same_bits<float>(param, in_place.param));
  CHECK(same_bits<float>(mean, in_place.mean));
  CHECK(same_bits<float>(square, in_place.square));
}

TEST_CASE("zero decay is adam, also of a parameter that is not finite", "[adam]") {
  Step step(2);
  step.param = tensor<float>({INFINITY, 1}, {2});
  const AdamCoefficients no_decay{0.01, 0.1, 0.001, 1e-8};
  CHECK(to_vector<float>(adam_step(step.operands(), no_decay)[0])[0] == INFINITY);
}

TEST_CASE("adam_step refuses what does not fit", "[adam]") {
  const Step good({2, 3}), other({3, 2}), wide({2, 3}, f64, f64), narrow({2, 3}, bf16, bf16);
  const auto refuses = [](const AdamOperands& operands, const std::string& message,
                          const AdamCoefficients& coefficients = kCoefficients) {
    const std::vector<float> before = to_vector<float>(cast(operands.param, f32));
    CHECK(test::error_of([&] { adam_step_(operands, coefficients); }) == message);
    CHECK(to_vector<float>(cast(operands.param, f32)) == before);
  };
  const Tensor &m = good.mean, &v = good.square, &g = good.gradient, &one = good.mean_of_ones,
               &two = good.square_of_ones;
  refuses({good.param, m, v, other.gradient, one, two},
          "[adam_step] expected param, mean, square, update of floating types and one shape, got "
          "f32[3, 2] beside f32[2, 3]");
  refuses({good.param, m, other.square, g, one, two},
          "[adam_step] expected param, mean, square, update of floating types and one shape, got "
          "f32[3, 2] beside f32[2, 3]");
  refuses({good.param, m, narrow.square, g, one, two},
          "[adam_step] expected mean, square of one type, f64 for f64 alone, got f32[2, 3] and "
          "bf16[2, 3] for f32[2, 3]");
  refuses({wide.param, m, v, wide.gradient, one, two},
          "[adam_step] expected mean, square of one type, f64 for f64 alone, got f32[2, 3] and "
          "f32[2, 3] for f64[2, 3]");
  refuses({good.param, m, v, g, g, two},
          "[adam_step] expected numbers or floating tensors of rank 0, got f32[2, 3]");
  refuses({good.param, m, v, g, one, two},
          "[adam_step] expected numbers or floating tensors of rank 0, got i64[]",
          {0.1, 0.1, 0.1, full({}, 1, {.dtype = i64})});
  refuses({good.param, m, Tensor(), g, one, two},
          "[adam_step] expected a tensor, got an undefined one as operand 2");
  // Operands that are written must not overlap.
  refuses({good.param, m, m, g, one, two},
          "[adam_step] expected outputs that do not overlap, got f32[2, 3] and f32[2, 3] in one "
          "storage");
  const Tensor both = drawn({4, 3}, 1);
  refuses({slice(both, 0, 0, 2), m, slice(both, 0, 1, 3), g, one, two},
          "[adam_step] expected inputs that do not overlap the output, got f32[2, 3] and "
          "f32[2, 3] in one storage");
  refuses({good.param, expand(drawn({1, 3}, 2), {2, 3}), v, g, one, two},
          "[adam_step] expected an output whose elements are distinct, got f32[2, 3] with strides "
          "[0, 1]");
  Step meta_gradient({2, 3});
  meta_gradient.gradient = meta({2, 3});
  refuses(meta_gradient.operands(),
          "[adam_step] expected operands with values to write to f32[2, 3], got a meta tensor");
}

TEST_CASE("no gradient passes through a step", "[adam]") {
  Step step(4);
  requires_grad_(step.gradient);
  for (const Tensor& made : adam_step(step.operands(), kCoefficients)) CHECK(!requires_grad(made));
  // A recorded value that is overwritten is a constant from then on.
  step.param = step.gradient * 2;
  step.mean = clone(step.mean);
  CHECK(requires_grad(step.param));
  adam_step_(step.operands(), kCoefficients);
  CHECK(!requires_grad(step.param));
  requires_grad_(step.square);
  CHECK(test::error_of([&] { adam_step_(step.operands(), kCoefficients); }) ==
        "[adam_step_] expected a tensor that does not collect a gradient itself, got the leaf "
        "f32[4]; write into it under no_grad");
}
