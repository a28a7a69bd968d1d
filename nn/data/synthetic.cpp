#include "brrr/nn/data/synthetic.h"

#include <vector>

#include "brrr/nn/data/random.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::data {
namespace {

// The examples are built in host memory, so their number is bounded.
void expect_size(const char* name, const Dims& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 1 || size > kMost || (count *= size) > kMost) {
      fail("[{}] expected sizes of at least 1 and at most 2^28 in all, got {}", name,
           to_string(shape));
    }
  }
}

std::vector<double> normals(Random& random, std::int64_t count, double deviation) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = random.normal() * deviation;
  return values;
}

}  // namespace

Dataset two_spirals(std::int64_t size, double noise, double turns, std::uint64_t seed) {
  expect_size("two_spirals", {size});
  Random random(seed);
  std::vector<float> points;
  std::vector<std::int64_t> classes;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t which = i % 2;
    // Square roots spread the points evenly along the arm.
    const double along = std::sqrt(random.uniform());
    const double angle = 2 * std::numbers::pi * (turns * along + 0.5 * static_cast<double>(which));
    points.push_back(static_cast<float>(along * std::cos(angle) + noise * random.normal()));
    points.push_back(static_cast<float>(along * std::sin(angle) + noise * random.normal()));
    classes.push_back(which);
  }
  return {tensor(points, {size, 2}, cpu), tensor(classes, {size}, cpu)};
}

Dataset regression(std::int64_t size, std::int64_t features, std::int64_t outputs, double noise,
                   std::uint64_t seed) {
  expect_size("regression", {size, features});
  expect_size("regression", {size, outputs});
  expect_size("regression", {features, features});
  expect_size("regression", {features, outputs});
  Random random(seed);
  const std::int64_t hidden = 2 * features;
  const std::vector<double> in =
      normals(random, features * hidden, 1 / std::sqrt(static_cast<double>(features)));
  const std::vector<double> out =
      normals(random, hidden * outputs, 1 / std::sqrt(static_cast<double>(hidden)));
  std::vector<float> inputs, targets;
  std::vector<double> inner(static_cast<std::size_t>(hidden));
  for (std::int64_t row = 0; row < size; ++row) {
    const std::vector<double> x = normals(random, features, 1);
    inputs.insert(inputs.end(), x.begin(), x.end());
    for (std::int64_t h = 0; h < hidden; ++h) {
      double sum = 0;
      for (std::int64_t f = 0; f < features; ++f) sum += x[f] * in[f * hidden + h];
      inner[h] = std::tanh(sum);
    }
    for (std::int64_t o = 0; o < outputs; ++o) {
      double sum = noise * random.normal();
      for (std::int64_t h = 0; h < hidden; ++h) sum += inner[h] * out[h * outputs + o];
      targets.push_back(static_cast<float>(sum));
    }
  }
  return {tensor(inputs, {size, features}, cpu), tensor(targets, {size, outputs}, cpu)};
}

}  // namespace brrr::data
