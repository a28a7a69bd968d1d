// Cells of adam_step: every pair of types and kind of layout against sums in double, into new
// tensors and in place.
#include "brrr/ops/adam_step.h"

#include <cmath>
#include <exception>

#include "brrr/ops/functions.h"
#include "tests/op_structured.h"

namespace brrr::test {
namespace {

// Coefficients in the order of AdamCoefficients.
constexpr double kNumbers[] = {0.125, 0.25, 0.0625, 0.5, 0.375};

struct Case {
  DType param, average;
  unsigned tensors;  // bits: which coefficients are tensors
  double decay;
};

struct Wanted {
  Values param, mean, square;
};

Wanted wanted(const Sample (&in)[4], double mean_of_ones, double square_of_ones, double decay) {
  const auto [rate, mean_weight, square_weight, eps, unused] = kNumbers;
  Wanted w;
  for (std::size_t i = 0; i < in[0].values.size(); ++i) {
    const double p = in[0].values[i], g = in[3].values[i];
    const double mean = in[1].values[i] + mean_weight * (g - in[1].values[i]);
    const double square = in[2].values[i] + square_weight * (g * g - in[2].values[i]);
    const double down = mean / mean_of_ones / (std::sqrt(square / square_of_ones) + eps);
    w.param.push_back(p - rate * (down + decay * p));
    w.mean.push_back(mean);
    w.square.push_back(square);
  }
  return w;
}

std::string buffer_difference(const Sample& x, const Values& want) {
  Values after = x.base_values;
  for (std::size_t i = 0; i < want.size(); ++i)
    after[static_cast<std::size_t>(x.places[i])] = want[i];
  return difference(x.base, x.tensor.dtype(), Dims{static_cast<std::int64_t>(after.size())}, after);
}

std::string problem_of(const Case& c, const Dims& shape, Layout layout, Layout other,
                       Device device) {
  Random random(hash_text("adam_step" + to_string(shape)));
  const auto sample = [&](DType dtype, double low, Layout as) {
    return make_sample(draw_many(random, dtype, numel_of(shape), low, 2), shape, dtype, as, device);
  };
  const Sample in[4] = {sample(c.param, -2, layout), sample(c.average, -2, other),
                        sample(c.average, 0, layout), sample(c.param, -2, other)};
  const double ones[2] = {0.5, 0.25};
  const Tensor mean_of_ones = full({}, ones[0], {.dtype = c.average, .device = device}),
               square_of_ones = full({}, ones[1], {.dtype = c.average, .device = device});
  Tensor held[5];
  std::vector<brrr::Operand> given;
  for (int i = 0; i < 5; ++i) {
    const double value = i == 4 ? c.decay : kNumbers[i];
    const bool is_tensor = c.tensors >> i & 1;
    if (is_tensor) held[i] = full({}, value, {.dtype = i == 0 ? f32 : c.average, .device = device});
    given.push_back(is_tensor ? brrr::Operand(held[i]) : brrr::Operand(value));
  }
  const AdamCoefficients coefficients{given[0], given[1], given[2], given[3], given[4]};
  const AdamOperands operands{in[0].tensor, in[1].tensor, in[2].tensor,
                              in[3].tensor, mean_of_ones, square_of_ones};
  const Wanted want = wanted(in, ones[0], ones[1], c.decay);
  const Values* const wants[3] = {&want.param, &want.mean, &want.square};

  const std::array<Tensor, 3> made = adam_step(operands, coefficients);
  const Tensor like = meta(shape, {.dtype = c.param, .device = device});
  const std::array<Tensor, 3> inferred = adam_step(
      {like, in[1].tensor, in[2].tensor, like, mean_of_ones, square_of_ones}, coefficients);
  for (int k = 0; k < 3; ++k) {
    const DType dtype = in[k].tensor.dtype();
    std::string problem = difference(made[k], dtype, shape, *wants[k]);
    if (problem.empty() && (!inferred[k].is_meta() || inferred[k].dtype() != dtype ||
                            Dims(inferred[k].shape()) != shape)) {
      problem = "meta gives " + inferred[k].describe();
    }
    if (!problem.empty()) return "output " + std::to_string(k) + ": " + problem;
  }
  for (const Sample& x : in) {
    if (const std::string problem = buffer_difference(x, x.values); !problem.empty())
      return "an input changed: " + problem;
  }
  if (layout == Layout::expanded || other == Layout::expanded) return "";
  adam_step_(operands, coefficients);
  for (int k = 0; k < 4; ++k) {
    if (const std::string problem = buffer_difference(in[k], k < 3 ? *wants[k] : in[k].values);
        !problem.empty())
      return "in place, operand " + std::to_string(k) + ": " + problem;
  }
  return "";
}

}  // namespace

void check_adam_step_cells(Report& report, Device device) {
  for (const auto& [param, average] :
       {std::pair{f32, f32}, std::pair{f64, f64}, std::pair{f16, f32}, std::pair{bf16, f32},
        std::pair{f16, f16}, std::pair{bf16, bf16}}) {
    for (const Case& c :
         {Case{param, average, 0u, 0.0}, Case{param, average, 0u, 0.375},
          Case{param, average, 0b10001u, 0.375}, Case{param, average, 0b11111u, 0.0}}) {
      for (const Dims& shape : {Dims{}, Dims{0}, Dims{1}, Dims{7}, Dims{16, 64}, Dims{1025},
                                Dims{33, 17}, Dims{2, 3, 4}}) {
        for (const Layout layout : kLayouts) {
          for (const Layout other : {Layout::contiguous, layout}) {
            if (!applies(layout, shape)) continue;
            std::string problem;
            try {
              problem = problem_of(c, shape, layout, other, device);
            } catch (const std::exception& error) {
              problem = std::string("threw ") + error.what();
            }
            report.count("adam_step of " + std::string(name_of(param)) + to_string(shape) +
                             " and " + name_of(average).data() + ", " + name_of(layout) + " and " +
                             name_of(other),
                         problem);
          }
        }
      }
    }
  }
}

}  // namespace brrr::test
