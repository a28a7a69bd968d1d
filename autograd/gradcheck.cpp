#include "brrr/autograd/gradcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "brrr/autograd/autograd.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/random_state.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

using Values = std::vector<double>;

// The function under test, with the inputs that are differentiated; all other inputs are fixed.
class Subject {
 public:
  Subject(const Differentiable& fn, const std::vector<Tensor>& inputs)
      : fn_(fn), inputs_(inputs), places_(random_places()) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined() || !requires_grad(inputs[i])) continue;
      if (inputs[i].dtype() != f64) {
        fail("[gradcheck] expected inputs in f64, got input {}, {}", i, inputs[i].describe());
      }
      differentiated_.push_back(i);
    }
    if (differentiated_.empty())
      fail("[gradcheck] expected an input that requires a gradient, got none");
  }

  std::span<const std::size_t> differentiated() const { return differentiated_; }
  const Tensor& input(std::size_t i) const { return inputs_[i]; }

  // Runs the function recorded; returns the outputs that have a gradient.
  std::vector<Tensor> recorded(std::span<const Tensor> inputs) const {
    const RandomReplay alike(places_);
    std::vector<Tensor> outputs = fn_(inputs);
    std::erase_if(outputs, [](const Tensor& y) { return !y.defined() || !is_floating(y.dtype()); });
    return outputs;
  }
  std::vector<Tensor> recorded() const { return recorded(inputs_); }

  // The outputs' values after adding `by` to input `which`.
  std::vector<Values> moved(std::size_t which, const Tensor& by) const {
    const NoGrad constant;
    std::vector<Tensor> inputs = inputs_;
    // Keeps the input's layout, since the kernels under test may depend on it.
    Tensor input = detach(inputs_[which]);
    const Tensor before = clone(input);
    add_(input, by);
    inputs[which] = input;
    std::vector<Values> values;
    for (const Tensor& y : recorded(inputs)) values.push_back(to_vector<double>(y));
    copy_(input, before);
    return values;
  }

 private:
  const Differentiable& fn_;
  const std::vector<Tensor>& inputs_;
  std::vector<std::size_t> differentiated_;
  RandomPlaces places_;
};

Tensor random_like(const Tensor& x, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(x.numel()));
  for (double& value : values) value = normal(random);
  return to(tensor<double>(values, Dims(x.shape()), x.device()), x.dtype());
}

// Compares derivatives and records the largest difference.
class Comparison {
 public:
  explicit Comparison(const GradcheckOptions& options) : options_(options) {}

  template <class Where>
  void compare(double analytic, double numeric, Where&& where) {
    const double difference = std::abs(analytic - numeric);
    if (difference > result.worst) result.worst = difference;
    constexpr double kRelative = 1e-3;
    const double allowed =
        options_.atol + kRelative * std::max(std::abs(numeric), std::abs(analytic));
    if (result.passed && !(difference <= allowed)) {
      result.passed = false;
      result.message = fmt::format("{}: the gradient is {:.9g}, differences give {:.9g}", where(),
                                   analytic, numeric);
    }
  }

  GradcheckResult result;

 private:
  const GradcheckOptions& options_;
};

// Checks every derivative of every output element.
void check_elements(const Subject& subject, const GradcheckOptions& options, Comparison& found) {
  for (const std::size_t which : subject.differentiated()) {
    // Records a new tape for each input: perturbing an input overwrites values that a tape saved.
    const std::vector<Tensor> outputs = subject.recorded();
    const Tensor& x = subject.input(which);
    // Rows of the Jacobian, by backward.
    std::vector<std::vector<Values>> rows(outputs.size());
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const Tensor& y = outputs[o];
      for (std::int64_t i = 0; i < y.numel(); ++i) {
        if (!requires_grad(y)) {
          rows[o].emplace_back(x.numel(), 0.0);
          continue;
        }
        std::vector<double> one(static_cast<std::size_t>(y.numel()), 0.0);
        one[i] = 1;
        const Tensor seed = to(tensor<double>(one, Dims(y.shape()), y.device()), y.dtype());
        const Tensor row =
            grad(std::span(&y, 1), std::span(&x, 1),
                 {.retain_graph = true, .allow_unused = true, .gradients = {seed}})[0];
        rows[o].push_back(row.defined() ? to_vector<double>(row) : Values(x.numel(), 0.0));
      }
    }
    for (std::int64_t j = 0; j < x.numel(); ++j) {
      std::vector<double> one(static_cast<std::size_t>(x.numel()), 0.0);
      one[j] = options.step;
      const Tensor step = tensor<double>(one, Dims(x.shape()), x.device());
      const auto above = subject.moved(which, step), below = subject.moved(which, neg(step));
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        for (std::size_t i = 0; i < above[o].size(); ++i) {
          const double numeric = (above[o][i] - below[o][i]) / (2 * options.step);
          found.compare(rows[o][i][j], numeric, [&] {
            return fmt::format("output {} element {} by input {} element {}", o, i, which, j);
          });
        }
      }
    }
  }
}

// Checks the derivative of a random combination of the outputs along a random direction.
void check_direction(const Subject& subject, const GradcheckOptions& options, Comparison& found) {
  std::mt19937_64 random(options.seed);
  const std::vector<Tensor> outputs = subject.recorded();
  std::vector<Tensor> tops, seeds, inputs;
  std::vector<Values> weights;
  for (const Tensor& y : outputs) {
    const Tensor seed = random_like(y, random);
    weights.push_back(to_vector<double>(seed));
    if (!requires_grad(y)) continue;
    tops.push_back(y);
    seeds.push_back(seed);
  }
  for (const std::size_t which : subject.differentiated()) inputs.push_back(subject.input(which));
  std::vector<Tensor> gradients(inputs.size());
  if (!tops.empty()) {
    gradients =
        grad(tops, inputs, {.retain_graph = true, .allow_unused = true, .gradients = seeds});
  }
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const std::size_t which = subject.differentiated()[k];
    const Tensor direction = random_like(inputs[k], random);
    double analytic = 0;
    if (gradients[k].defined()) analytic = item(sum(detach(gradients[k]) * direction));
    const auto above = subject.moved(which, direction * options.step),
               below = subject.moved(which, direction * -options.step);
    double numeric = 0;
    for (std::size_t o = 0; o < above.size(); ++o) {
      for (std::size_t i = 0; i < above[o].size(); ++i)
        numeric += weights[o][i] * (above[o][i] - below[o][i]) / (2 * options.step);
    }
    found.compare(analytic, numeric,
                  [&] { return fmt::format("along a direction of input {}", which); });
  }
}

void check(const Differentiable& fn, const std::vector<Tensor>& inputs,
           const GradcheckOptions& options, Comparison& found) {
  const Subject subject(fn, inputs);
  if (options.directional) {
    check_direction(subject, options, found);
  } else {
    check_elements(subject, options, found);
  }
}

}  // namespace

GradcheckResult gradcheck(const Differentiable& fn, const std::vector<Tensor>& inputs,
                          GradcheckOptions options) {
  if (!fn) fail("[gradcheck] expected a function, got none");
  if (!(options.step > 0 && std::isfinite(options.step)))
    fail("[gradcheck] expected a step above 0, got {}", options.step);
  if (Subject(fn, inputs).recorded().empty())
    fail("[gradcheck] expected a function with a floating result, got none");
  Comparison found(options);
  check(fn, inputs, options, found);
  if (!found.result.passed || !options.second_order) return found.result;

  // The gradients as a function of the inputs and of the outputs' gradients.
  std::mt19937_64 random(options.seed + 1);
  std::vector<Tensor> all = inputs;
  const Subject subject(fn, inputs);
  std::vector<std::size_t> with_gradient;
  const std::vector<Tensor> outputs = subject.recorded();
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (!requires_grad(outputs[o])) continue;
    with_gradient.push_back(o);
    all.push_back(requires_grad_(random_like(outputs[o], random)));
  }
  const std::size_t n = inputs.size();
  const Differentiable gradients = [&](std::span<const Tensor> given) {
    std::vector<Tensor> tops, wanted,
        seeds(given.begin() + static_cast<std::ptrdiff_t>(n), given.end());
    // Finite differences perturb inputs under NoGrad, but this function computes gradients itself.
    const EnableGrad recording;
    std::vector<Tensor> leaves(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(n));
    for (const std::size_t which : subject.differentiated()) {
      if (!requires_grad(leaves[which])) leaves[which] = requires_grad_(detach(leaves[which]));
      wanted.push_back(leaves[which]);
    }
    const std::vector<Tensor> recorded = subject.recorded(leaves);
    for (const std::size_t o : with_gradient) tops.push_back(recorded[o]);
    std::vector<Tensor> result = grad(
        tops, wanted, {.create_graph = true, .allow_unused = true, .gradients = std::move(seeds)});
    std::erase_if(result, [](const Tensor& g) { return !g.defined(); });
    return result;
  };
  check(gradients, all, options, found);
  if (!found.result.passed) found.result.message = "second order: " + found.result.message;
  return found.result;
}

GradcheckResult gradcheck(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input,
                          GradcheckOptions options) {
  if (!fn) fail("[gradcheck] expected a function, got none");
  return gradcheck(
      [&fn](std::span<const Tensor> inputs) { return std::vector<Tensor>{fn(inputs[0])}; },
      std::vector<Tensor>{input}, options);
}

}  // namespace brrr
