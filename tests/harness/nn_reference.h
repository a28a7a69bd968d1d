// Helpers of the tests of modules: tensors in closed form, and comparison.
#pragma once

#include <brrr/brrr.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/harness/errors_expected.h"

namespace brrr::test {

inline constexpr Options kWide{f64, cpu};

// 0.5 sin(phase + 0.9 i) at element i, as golden/make_nn_golden.py has it.
inline Tensor pattern(const Dims& shape, double phase) {
  const Tensor x = empty(shape, kWide);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.data<double>()[i] = 0.5 * std::sin(phase + 0.9 * static_cast<double>(i));
  }
  return x;
}

inline double phase_of(const std::string& name) {
  int sum = 0;
  for (const char c : name) sum += static_cast<unsigned char>(c);
  return sum % 100 * 0.1;
}

// Every parameter becomes the pattern of its name.
inline void fill_with_patterns(nn::Module& module) {
  const NoGrad constant;
  for (const auto& entry : module.named_tensors()) {
    copy_(*entry.tensor, pattern(entry.tensor->shape(), phase_of(entry.name)));
  }
}

// "" when x has this shape and these values.
inline std::string difference_from(const Tensor& x, const Dims& shape,
                                   const std::vector<double>& expected, double tolerance = 1e-10) {
  if (!x.defined()) return "undefined";
  if (Dims(x.shape()) != shape) return "got " + x.describe() + ", not " + to_string(shape);
  const std::vector<double> got = to_vector<double>(to(x, f64));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double slack = tolerance * std::max(1.0, std::abs(expected[i]));
    if (!(std::abs(got[i] - expected[i]) <= slack)) {
      return "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
             std::to_string(expected[i]);
    }
  }
  return "";
}
inline std::string difference_between(const Tensor& x, const Tensor& expected,
                                      double tolerance = 1e-10) {
  return difference_from(x, expected.shape(), to_vector<double>(to(expected, f64)), tolerance);
}

}  // namespace brrr::test
