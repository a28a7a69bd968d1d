#include "tests/harness/chain_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "brrr/nn/optim/clip.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/nn/optim/schedule.h"
#include "tests/harness/samples.h"

namespace brrr::test {
namespace {

using std::int64_t;

enum class Activation { tanh, sigmoid, gelu, sin };
Tensor activated(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::sigmoid: return sigmoid(x);
    case Activation::gelu: return gelu_tanh(x);
    case Activation::sin: return sin(x);
    default: return tanh(x);
  }
}

// Parameters from `first` on: two layers with biases.
std::vector<Dims> mlp_shapes(int64_t in, int64_t width, int64_t out) {
  return {{in, width}, {width}, {width, out}, {out}};
}
Tensor mlp(const Tensors& p, const Tensor& x, Activation activation, std::size_t first = 0) {
  const Tensor h = activated(matmul(x, p[first]) + p[first + 1], activation);
  return matmul(h, p[first + 2]) + p[first + 3];
}

// --- Solvers ---

enum class Solver { euler, heun, rk4 };
const char* name_of(Solver solver) {
  return solver == Solver::euler ? "Euler" : solver == Solver::heun ? "Heun" : "RK4";
}

template <class State, class F>
State solved(Solver solver, State z, int steps, const F& f) {
  const double h = 1.0 / steps;
  for (int i = 0; i < steps; ++i) {
    const State k1 = f(z);
    switch (solver) {
      case Solver::euler: z = z + k1 * h; break;
      case Solver::heun: z = z + (k1 + f(z + k1 * h)) * (h / 2); break;
      case Solver::rk4: {
        const State k2 = f(z + k1 * (h / 2)), k3 = f(z + k2 * (h / 2)), k4 = f(z + k3 * h);
        z = z + (k1 + k2 * 2.0 + k3 * 2.0 + k4) * (h / 6);
      }
    }
  }
  return z;
}

ChainProgram neural_ode(Solver solver, int64_t points, int64_t dims, int64_t width, int steps,
                        Activation activation = Activation::tanh) {
  return {fmt::format("neural ODE of {0}-{1}-{0} on {2} points, {3} steps of {4}", dims, width,
                      points, steps, name_of(solver)),
          mlp_shapes(dims, width, dims),
          {{points, dims}, {points, dims}},
          [=](const Tensors& p, const Tensors& a) {
            const Tensor z =
                solved(solver, a[0], steps, [&](const Tensor& x) { return mlp(p, x, activation); });
            return mean(square(z - a[1]));
          }};
}

// A continuous normalizing flow: the state and the logarithm of its density, whose derivative is
// the divergence of the field, estimated along one direction.
struct Flow {
  Tensor z, log_density;
  Flow operator+(const Flow& other) const { return {z + other.z, log_density + other.log_density}; }
  Flow operator*(double by) const { return {z * by, log_density * by}; }
};

ChainProgram continuous_flow(Solver solver, int64_t points, int64_t dims, int64_t width,
                             int steps) {
  return {fmt::format("continuous flow of {0}-{1}-{0} on {2} points, {3} steps of {4}", dims, width,
                      points, steps, name_of(solver)),
          mlp_shapes(dims, width, dims),
          {{points, dims}, {points, dims}},
          [=](const Tensors& p, const Tensors& a) {
            const Tensor z0 = requires_grad_(detach(a[0]));
            const Flow end =
                solved(solver, Flow{z0, sum(z0, {1}, true) * 0.0}, steps, [&](const Flow& flow) {
                  const Tensor f = mlp(p, flow.z, Activation::tanh);
                  const Tensor along = grad(sum(f * a[1]), flow.z, {.create_graph = true});
                  return Flow{f, sum(along * a[1], {1}, true) * -1.0};
                });
            return mean(sum(square(end.z), {1}, true) * 0.5 - end.log_density);
          }};
}

// --- Recurrent cells ---

enum class Cell { rnn, lstm, gru };
int64_t gates_of(Cell cell) { return cell == Cell::rnn ? 1 : cell == Cell::lstm ? 4 : 3; }

// Parameters from `first` on: weights of the input and of the state, two biases.
Tensors run_cell(Cell cell, const Tensors& p, std::size_t first, const Tensors& inputs,
                 int64_t width) {
  Tensor h = zeros({inputs[0].size(0), width}, {inputs[0].dtype(), inputs[0].device()}), c = h;
  Tensors states;
  for (const Tensor& x : inputs) {
    const Tensor of_x = matmul(x, p[first]) + p[first + 2],
                 of_h = matmul(h, p[first + 1]) + p[first + 3];
    if (cell == Cell::rnn) {
      h = tanh(of_x + of_h);
    } else if (cell == Cell::lstm) {
      const Tensors g = chunk(of_x + of_h, 4, 1);
      c = sigmoid(g[1]) * c + sigmoid(g[0]) * tanh(g[2]);
      h = sigmoid(g[3]) * tanh(c);
    } else {
      const Tensors gx = chunk(of_x, 3, 1), gh = chunk(of_h, 3, 1);
      const Tensor z = sigmoid(gx[0] + gh[0]), r = sigmoid(gx[1] + gh[1]);
      h = (1.0 - z) * tanh(gx[2] + r * gh[2]) + z * h;
    }
    states.push_back(h);
  }
  return states;
}

ChainProgram recurrent(Cell cell, bool both_ways, int64_t batch, int64_t in, int64_t width,
                       int steps) {
  const int64_t gates = gates_of(cell) * width;
  std::vector<Dims> parameters;
  for (int way = 0; way <= both_ways; ++way)
    parameters.insert(parameters.end(), {{in, gates}, {width, gates}, {gates}, {gates}});
  parameters.insert(parameters.end(), {{width * (both_ways ? 2 : 1), in}, {in}});
  const char* const names[] = {"RNN", "LSTM", "GRU"};
  return {fmt::format("{}{} of {}-{}, {} sequences of {}", both_ways ? "bidirectional " : "",
                      names[static_cast<int>(cell)], in, width, batch, steps),
          parameters,
          {{steps, batch, in}, {batch, in}},
          [=](const Tensors& p, const Tensors& a) {
            Tensors inputs;
            for (int t = 0; t < steps; ++t) inputs.push_back(select(a[0], 0, t));
            Tensors states = run_cell(cell, p, 0, inputs, width);
            if (both_ways) {
              std::ranges::reverse(inputs);
              const Tensors back = run_cell(cell, p, 4, inputs, width);
              for (std::size_t t = 0; t < states.size(); ++t)
                states[t] = cat({states[t], back[states.size() - 1 - t]}, 1);
            }
            Tensor loss;
            for (const Tensor& state : states) {
              const Tensor y = matmul(state, p[p.size() - 2]) + p.back();
              const Tensor part = mean(square(y - a[1]));
              loss = loss.defined() ? loss + part : part;
            }
            return loss;
          }};
}

// --- Gradients in the loss ---

ChainProgram inner_gradients(int64_t points, int64_t dims, int64_t width, int steps,
                             Activation activation) {
  return {
      fmt::format("{} inner gradient steps of {}-{}-1 on {} points", steps, dims, width, points),
      mlp_shapes(dims, width, 1),
      {{points, dims}, {points, 1}, {points, dims}, {points, 1}},
      [=](const Tensors& p, const Tensors& a) {
        Tensors inner = p;
        for (int i = 0; i < steps; ++i) {
          const Tensor loss = mean(square(mlp(inner, a[0], activation) - a[1]));
          const Tensors g = grad(std::vector<Tensor>{loss}, inner, {.create_graph = true});
          for (std::size_t k = 0; k < inner.size(); ++k) inner[k] = inner[k] - g[k] * 0.1;
        }
        return mean(square(mlp(inner, a[2], activation) - a[3]));
      }};
}

// --- Pointwise calls with sums over both directions ---

ChainProgram norms(int64_t rows, int64_t columns, int layers) {
  std::vector<Dims> parameters;
  for (int i = 0; i < layers; ++i)
    parameters.insert(parameters.end(), {{columns}, {columns}, {columns, columns}});
  return {fmt::format("{} normed layers of {} x {}", layers, rows, columns),
          parameters,
          {{rows, columns}, {rows, columns}},
          [=](const Tensors& p, const Tensors& a) {
            Tensor x = a[0];
            for (std::size_t i = 0; i < p.size(); i += 3)
              x = x + gelu_tanh(matmul(layer_norm(x, 1, p[i], p[i + 1]), p[i + 2]));
            return mean(square(softmax(x, 1) - a[1]));
          }};
}

// Each call reads two of the last values; every value is read several times.
ChainProgram many_readers(std::uint64_t seed, int64_t rows, int64_t columns, int calls) {
  return {fmt::format("{} calls of many readers of {} x {} ({})", calls, rows, columns, seed),
          {{columns}, {rows, 1}, {rows, columns}},
          {{rows, columns}, {rows, columns}},
          [=](const Tensors& p, const Tensors& a) {
            Random random(seed);
            Tensors values = {a[0] * p[0], a[1] + p[1], p[2] * a[0]};
            const auto one = [&] {
              const auto most = std::min<int64_t>(static_cast<int64_t>(values.size()), 8);
              return values[values.size() - 1 - static_cast<std::size_t>(random.below(most))];
            };
            Tensor loss = mean(square(values[0] + values[1] * values[2]));
            for (int i = 0; i < calls; ++i) {
              const Tensor x = one(), y = one();
              const int dim = static_cast<int>(random.below(2));
              switch (random.below(9)) {
                case 0: values.push_back(x * y * 0.5); break;
                case 1: values.push_back(x - y); break;
                case 2: values.push_back(tanh(x) + y * 0.5); break;
                case 3: values.push_back(sigmoid(x) * y); break;
                case 4: values.push_back(x - mean(y, {dim}, true)); break;
                case 5: values.push_back(sin(x) * p[0] + p[1]); break;
                case 6: values.push_back(softmax(x, dim) + y); break;
                case 7: values.push_back(x * mean(x * y, {dim}, true)); break;
                default: values.push_back(sin(x) * sum(tanh(y), {dim}, true) * 0.1);
              }
              if (random.below(4) == 0) loss = loss + mean(tanh(sum(values.back(), {dim})));
            }
            return loss + mean(square(tanh(values.back())));
          }};
}

}  // namespace

std::vector<ChainProgram> named_chain_programs() {
  std::vector<ChainProgram> all = {
      neural_ode(Solver::rk4, 40, 2, 32, 8),
      neural_ode(Solver::euler, 64, 2, 16, 20),
      neural_ode(Solver::heun, 33, 3, 20, 6, Activation::gelu),
      continuous_flow(Solver::rk4, 24, 2, 16, 2),
      recurrent(Cell::rnn, false, 8, 4, 16, 12),
      recurrent(Cell::lstm, false, 5, 4, 8, 3),
      recurrent(Cell::gru, false, 8, 4, 16, 32),
      recurrent(Cell::gru, true, 4, 3, 8, 6),
      inner_gradients(20, 2, 16, 2, Activation::tanh),
      norms(48, 24, 4),
      many_readers(1, 40, 24, 60),
  };
  for (std::size_t i = 1; i < all.size(); i += 2) all[i].by_backward = true;
  return all;
}

ChainProgram draw_chain_program(std::uint64_t seed) {
  Random random(seed * 131 + 5);
  const auto between = [&](int64_t low, int64_t high) {
    return low + random.below(high - low + 1);
  };
  const auto steps = [&](int64_t low, int64_t high) {
    return static_cast<int>(between(low, high));
  };
  const auto solver = static_cast<Solver>(random.below(3));
  const auto activation = static_cast<Activation>(random.below(4));
  const auto cell = static_cast<Cell>(random.below(3));
  // Sizes of one and of two kinds of vectors, and odd ones.
  const int64_t rows = random.below(2) ? 4 * between(1, 16) : between(2, 70);
  const int64_t width = random.below(2) ? 4 * between(1, 12) : between(2, 40);
  const int64_t dims = between(1, 5);
  ChainProgram program;
  switch (seed % 7) {
    case 0: program = neural_ode(solver, rows, dims, width, steps(1, 8), activation); break;
    case 1: program = many_readers(seed, rows, width, steps(5, 70)); break;
    case 2:
      program = recurrent(cell, random.below(2), between(1, 9), dims, width, steps(1, 6));
      break;
    case 3: program = inner_gradients(rows, dims, width, steps(1, 3), activation); break;
    case 4: program = many_readers(seed, rows, width, steps(5, 70)); break;
    case 5: program = continuous_flow(solver, rows, dims, width, steps(1, 2)); break;
    default: program = norms(rows, width, steps(1, 5));
  }
  program.by_backward = random.below(2);
  return program;
}

namespace {

optim::Transformation optimizer_of(const ChainProgram& program) {
  const optim::Transformation adam = optim::adam(optim::cosine_decay_schedule(0.01, 100));
  return program.name.size() % 2 ? adam : optim::chain(optim::clip_by_global_norm(1.0), adam);
}

}  // namespace

Training::Training(const ChainProgram& program, Device device, DType dtype)
    : program_(program), device_(device), dtype_(dtype), optimizer_(optimizer_of(program)) {
  std::uint64_t seed = 1;
  for (const Dims& shape : program_.parameters) {
    const double scale = shape.size() > 1 ? 1 / std::sqrt(static_cast<double>(shape[0])) : 0.1;
    parameters_.push_back(to(to(noise(shape, seed++) * scale, dtype), device));
    requires_grad_(parameters_.back());
  }
  state_ = optimizer_.init(parameters_);
}

Tensors Training::operator()(const Tensors& arguments) {
  if (program_.by_backward) {
    for (const Tensor& leaf : parameters_) zero_grad(leaf);
  }
  const Tensor loss = program_.loss(parameters_, arguments);
  Tensors results = {detach(loss)}, gradients;
  if (program_.by_backward) {
    backward(loss);
    for (const Tensor& leaf : parameters_) gradients.push_back(grad(leaf));
  } else {
    gradients = grad(std::vector<Tensor>{loss}, parameters_);
    results.insert(results.end(), gradients.begin(), gradients.end());
  }
  const NoGrad constant;
  optimizer_.apply(gradients, state_, parameters_);
  return results;
}

Tensors Training::arguments(int call) const {
  Tensors all;
  for (std::size_t i = 0; i < program_.arguments.size(); ++i) {
    const std::uint64_t seed = 50 + 100 * static_cast<std::uint64_t>(call) + i;
    all.push_back(to(to(noise(program_.arguments[i], seed), dtype_), device_));
  }
  return all;
}

Tensors Training::gradients(const Tensors& results) const {
  if (!program_.by_backward) return {results.begin() + 1, results.end()};
  Tensors all;
  for (const Tensor& leaf : parameters_) all.push_back(grad(leaf));
  return all;
}

std::string chain_difference(const ChainProgram& program, Mode mode, Remat remat) {
  try {
    return difference_from_eager(
        [&] {
          const auto training = std::make_shared<Training>(program);
          World world;
          world.step = [=](const Tensors& in) { return (*training)(in); };
          world.arguments = [=](int call) { return training->arguments(call); };
          world.seen = [=] {
            Tensors all = training->parameters();
            for (const Tensor& leaf : training->parameters()) all.push_back(grad(leaf));
            return all;
          };
          return world;
        },
        3, mode, remat);
  } catch (const Error& error) {
    return std::string("threw ") + error.what();
  }
}

namespace {

double largest(const Tensor& x) { return x.numel() == 0 ? 0 : item(max(abs(x))); }

// The losses and gradients of two steps, f64 on the CPU.
Tensors history_of(const ChainProgram& program, Device device, DType dtype, Mode mode) {
  Training training(program, device, dtype);
  auto step = compile([&](const Tensors& in) { return training(in); },
                      {.mode = mode, .name = "tested", .fallback = OnFallback::refuse});
  Tensors all;
  for (int call = 0; call < 2; ++call) {
    const Tensors results = step(training.arguments(call));
    Tensors each = training.gradients(results);
    each.insert(each.begin(), results[0]);
    const NoGrad constant;
    for (const Tensor& x : each) all.push_back(to(to(detach(x), cpu), f64));
  }
  return all;
}

}  // namespace

std::string chain_error(const ChainProgram& program, Device device) {
  // Of the largest gradient: for sums of other orders, and after a step of Adam, whose size does
  // not depend on the size of a gradient: one that cancels may move a parameter either way.
  constexpr double kAnyway = 2e-4, kAfterStep = 3e-2, kOfEager = 8;
  try {
    const Tensors exact = history_of(program, cpu, f64, Mode::eager),
                  eager = history_of(program, device, f32, Mode::eager),
                  fused = history_of(program, device, f32, Mode::fused);
    // Gradients that cancel are as wrong as the others of their step.
    double size = 1e-3;
    for (const Tensor& x : exact) size = std::max(size, largest(x));
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double error = largest(fused[i] - exact[i]), usual = largest(eager[i] - exact[i]);
      const double anyway = i < exact.size() / 2 ? kAnyway : kAfterStep;
      if (error <= kOfEager * usual + anyway * size) continue;
      return fmt::format("tensor {} of call {} is off by {}, by {} eagerly, and has {}",
                         i % (exact.size() / 2), i / (exact.size() / 2), error, usual,
                         largest(exact[i]));
    }
    return "";
  } catch (const Error& error) {
    return std::string("threw ") + error.what();
  }
}

}  // namespace brrr::test
