// Fused kernels of as many operands as one may have, and programs that reach it: unrolled recurrent
// cells and solvers, with gradients of what all their steps read.
#include <array>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/body.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/environment.h"

namespace brrr::test {
namespace {

// sum(a0 + a1 + ..., dim) of `count` tensors.
Case sum_of(int count, const Dims& shape, std::vector<std::int64_t> over) {
  Case sums;
  sums.name = "a sum of sums";
  sums.arguments.assign(static_cast<std::size_t>(count), shape);
  sums.function = [over](const Tensors&, const Tensors& a) {
    Tensor all = a[0];
    for (std::size_t i = 1; i < a.size(); ++i) all = all + a[i];
    return Tensors{over.empty() ? all * 2.0 : sum(all, Dims(over))};
  };
  return sums;
}

Tensor lstm_step(const Tensor& x, Tensor& hidden, Tensor& cell, const Tensors& weights) {
  const Tensor gates = matmul(x, weights[0]) + matmul(hidden, weights[1]) + weights[2];
  const std::int64_t width = hidden.size(1);
  const auto gate = [&](int k) { return narrow(gates, 1, k * width, width); };
  cell = sigmoid(gate(0)) * cell + sigmoid(gate(1)) * tanh(gate(2));
  return hidden = sigmoid(gate(3)) * tanh(cell);
}

Tensors lstm(const Tensors& weights, const Tensors& a) {
  Tensor hidden = zeros({5, 7}), cell = zeros({5, 7});
  Tensor loss = zeros({});
  for (int t = 0; t < 3; ++t)
    loss = loss + sum(square(lstm_step(select(a[0], 0, t), hidden, cell, weights)));
  backward(loss);
  return {loss, hidden, cell};
}

Tensor gru_step(const Tensor& x, const Tensor& hidden, const Tensors& weights, std::size_t first) {
  const Tensor of_x = matmul(x, weights[first]) + weights[first + 2];
  const Tensor of_h = matmul(hidden, weights[first + 1]);
  const std::int64_t width = hidden.size(1);
  const auto part = [&](const Tensor& all, int k) { return narrow(all, 1, k * width, width); };
  const Tensor reset = sigmoid(part(of_x, 0) + part(of_h, 0));
  const Tensor update = sigmoid(part(of_x, 1) + part(of_h, 1));
  const Tensor next = tanh(part(of_x, 2) + reset * part(of_h, 2));
  return update * hidden + (1.0 - update) * next;
}

// Over the steps in both directions; the loss reads both states of each.
Tensors bidirectional_gru(const Tensors& weights, const Tensors& a) {
  constexpr int steps = 4;
  Tensor forward = zeros({5, 6}), back = zeros({5, 6});
  std::array<Tensor, steps> ahead, behind;
  for (int t = 0; t < steps; ++t) {
    ahead[t] = forward = gru_step(select(a[0], 0, t), forward, weights, 0);
    behind[steps - 1 - t] = back = gru_step(select(a[0], 0, steps - 1 - t), back, weights, 3);
  }
  Tensor loss = zeros({});
  for (int t = 0; t < steps; ++t) loss = loss + mean(square(cat({ahead[t], behind[t]}, 1) - a[1]));
  backward(loss);
  return {loss, forward, back};
}

// Runge-Kutta steps of a field that an MLP gives.
Tensors neural_ode(const Tensors& weights, const Tensors& a) {
  const auto field = [&](const Tensor& x) {
    return matmul(tanh(matmul(x, weights[0]) + weights[1]), weights[2]) + weights[3];
  };
  Tensor x = a[0];
  constexpr double dt = 0.1;
  for (int step = 0; step < 8; ++step) {
    const Tensor k1 = field(x), k2 = field(x + k1 * (dt / 2)), k3 = field(x + k2 * (dt / 2)),
                 k4 = field(x + k3 * dt);
    x = x + (k1 + k2 * 2.0 + k3 * 2.0 + k4) * (dt / 6);
  }
  const Tensor loss = mean(square(x - a[1]));
  backward(loss);
  return {loss, x};
}

}  // namespace

TEST_CASE("fused sums of more tensors than a kernel takes have eager's bits",
          "[fuse][limits][sanitized]") {
  constexpr int most = static_cast<int>(jit::Body::kMostOperands);
  std::vector<Case> cases;
  for (const int count : {15, 16, 17, most - 2, most - 1, most, most + 1, 2 * most + 3}) {
    cases.push_back(sum_of(count, {8, 4}, {0}));
    if (count < most - 2 || count > most) continue;
    for (const Dims& shape : {Dims{8, 5}, Dims{9, 16}, Dims{3, 700}}) {
      for (const std::vector<std::int64_t>& over : {std::vector<std::int64_t>{}, {0}, {1}, {0, 1}})
        cases.push_back(sum_of(count, shape, over));
    }
  }
  check_all(cases, Mode::fused);
}

// A kernel has at most so many calls, and a body so many values.
TEST_CASE("fused chains of more calls than a kernel takes have eager's bits", "[fuse][limits]") {
  constexpr int most = static_cast<int>(jit::Body::kMostValues);
  std::vector<Case> cases;
  // Each call is one value; the input is another.
  for (const int calls : {most - 2, most - 1, most, most + 1}) {
    Case chain;
    chain.name = "a chain";
    chain.arguments = {{37}};
    chain.function = [calls](const Tensors&, const Tensors& a) {
      Tensor x = a[0];
      for (int i = 0; i < calls; ++i) x = i % 2 ? abs(x) : -x;
      return Tensors{x};
    };
    cases.push_back(chain);
  }
  check_all(cases, Mode::fused);
}

TEST_CASE("fused unrolled cells and solvers have eager's bits", "[fuse][limits][sanitized]") {
  std::vector<Case> cases = {
      with_leaves("LSTM", lstm, {{3, 28}, {7, 28}, {28}}),
      with_leaves("bidirectional GRU", bidirectional_gru,
                  {{3, 18}, {6, 18}, {18}, {3, 18}, {6, 18}, {18}}),
      with_leaves("neural ODE", neural_ode, {{2, 16}, {16}, {16, 2}, {2}}),
  };
  cases[0].arguments = {{3, 5, 3}};
  cases[1].arguments = {{4, 5, 3}, {5, 12}};
  cases[2].arguments = {{40, 2}, {40, 2}};
  check_all(cases, Mode::fused);
}

}  // namespace brrr::test
