// Steps whose regime is known by replacing their work: each is also made without its own code, with
// its calls on next to no data, without its arithmetic, and, where a kernel is slow, in a better
// way. bench/prepared.py compares what that shows with the verdicts of brrr.
//
//   prepared_steps list                                # name and mode of each
//   prepared_steps parts SECONDS NAME MODE [DEVICE]    # us a step, whole and with work replaced
//   prepared_steps compare NAME …                      # the commands of brrr
#include <brrr/brrr.h>
#include <brrr/measure/main.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace brrr;

namespace {

// What is left of a step's work.
enum class Part : std::uint8_t { whole, no_own_code, calls, no_arithmetic, better };
constexpr const char* kParts[] = {"whole", "no own code", "calls", "no arithmetic", "better"};

using Make = std::function<measure::Step(Mode mode, Part part)>;

struct Prepared {
  std::string name;
  Mode mode;
  std::vector<Part> parts;  // beside the whole one
  Make make;
};

std::int64_t rows_of(Part part, std::int64_t rows) { return part == Part::calls ? 2 : rows; }

// Without arithmetic: the factors are read and the product is written.
Tensor product(const Tensor& a, const Tensor& b, Part part) {
  if (part != Part::no_arithmetic) return matmul(a, b);
  return sum(a, {-1}, true) + sum(b, {-2}, true);
}

// Forward and backward passes of `loss`, and a step of SGD.
template <class Loss>
measure::Step training(Mode mode, std::vector<Tensor> parameters, Loss loss) {
  for (Tensor& each : parameters) requires_grad_(each);
  const auto optimizer = std::make_shared<optim::Optimizer>(parameters, optim::sgd(1e-4));
  return compile(
      [optimizer, loss] {
        optimizer->zero_grad();
        const Tensor value = loss();
        backward(value);
        optimizer->step();
        return detach(value);
      },
      {.mode = mode});
}

// --- Own code ---

// A small net on rows that `load` makes anew for each step.
template <class Load>
Make fed_by(Load load) {
  return [load](Mode mode, Part part) -> measure::Step {
    const Tensor w = requires_grad_(randn({64, 16}));
    const auto optimizer =
        std::make_shared<optim::Optimizer>(std::vector<Tensor>{w}, optim::sgd(1e-4));
    const auto step = std::make_shared<Compiled<std::function<Tensor(const Tensor&)>>>(
        compile(std::function<Tensor(const Tensor&)>([optimizer, w](const Tensor& x) {
                  optimizer->zero_grad();
                  const Tensor loss = mean(square(tanh(matmul(x, w))));
                  backward(loss);
                  optimizer->step();
                  return detach(loss);
                }),
                {.mode = mode}));
    const Tensor kept = tensor(load(), {32, 64});
    if (part == Part::no_own_code) return [step, kept] { return (*step)(kept); };
    return [step, load] { return (*step)(tensor(load(), {32, 64})); };
  };
}

std::vector<float> parsed() {
  std::ostringstream text;
  for (int i = 0; i < 2048; ++i) text << 0.001 * i << ' ';
  std::istringstream from(text.str());
  std::vector<float> values;
  for (float value = 0; from >> value;) values.push_back(value);
  return values;
}

std::vector<float> awaited() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return std::vector<float>(2048, 0.5F);
}

std::vector<float> augmented() {
  std::vector<float> image(2048);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < image.size(); ++i)
      image[i] = std::sin(static_cast<float>(i) + image[image.size() - 1 - i]);
  }
  return image;
}

std::vector<float> shuffled() {
  std::vector<float> values(20000);
  std::uint32_t state = 1;
  for (float& each : values)
    each = static_cast<float>((state = state * 1664525U + 1013904223U) >> 8);
  std::ranges::sort(values);
  values.resize(2048);
  for (float& each : values) each *= 1e-7F;
  return values;
}

// --- Overhead ---

Make mlp(std::int64_t rows, std::int64_t width, int layers, DType dtype = f32) {
  return [=](Mode mode, Part part) {
    const std::int64_t n = part == Part::calls ? 8 : width;
    const Tensor x = cast(randn({rows_of(part, rows), n}), dtype);
    std::vector<Tensor> weights;
    for (int i = 0; i < layers; ++i)
      weights.push_back(cast(randn({n, n}) / std::sqrt(static_cast<double>(n)), dtype));
    return training(mode, weights, [=] {
      Tensor y = x;
      for (const Tensor& w : weights) y = maximum(product(y, w, part), 0);
      return mean(square(y));
    });
  };
}

Make recurrent(std::int64_t steps) {
  return [=](Mode mode, Part part) {
    const std::int64_t n = part == Part::calls ? 4 : 16;
    const Tensor u = randn({n, n}), w = randn({n, n}), x = randn({steps, 8, n});
    return training(mode, {u, w}, [=] {
      Tensor h = zeros({8, n});
      for (std::int64_t i = 0; i < steps; ++i) h = tanh(matmul(h, u) + matmul(select(x, 0, i), w));
      return mean(square(h));
    });
  };
}

Make many_parameters(int count) {
  return [=](Mode mode, Part part) {
    std::vector<Tensor> all;
    for (int i = 0; i < count; ++i) all.push_back(randn({part == Part::calls ? 2 : 20}));
    return training(mode, all, [=] {
      Tensor sum_of_all = sum(square(all[0]));
      for (std::size_t i = 1; i < all.size(); ++i) sum_of_all = sum_of_all + sum(square(all[i]));
      return sum_of_all;
    });
  };
}

// An ordinary differential equation by the Runge-Kutta method of fourth order.
Make ode(int steps) {
  return [=](Mode mode, Part part) {
    const Tensor start = randn({rows_of(part, 16), 2}), w = randn({2, 2});
    return training(mode, {w}, [=] {
      const auto slope = [&](const Tensor& y) { return tanh(matmul(y, w)); };
      Tensor y = start;
      for (int i = 0; i < steps; ++i) {
        const Tensor a = slope(y), b = slope(y + 0.05 * a), c = slope(y + 0.05 * b);
        y = y + 0.1 / 6 * (a + 2 * b + 2 * c + slope(y + 0.1 * c));
      }
      return mean(square(y));
    });
  };
}

// Better: in one call.
Make attention(std::int64_t length, std::int64_t width) {
  return [=](Mode mode, Part part) {
    const std::int64_t t = part == Part::calls ? 4 : length;
    const Tensor x = randn({2, t, width}), q = randn({width, width}) * 0.05,
                 k = randn({width, width}) * 0.05, v = randn({width, width}) * 0.05;
    return training(mode, {q, k, v}, [=] {
      const Tensor query = product(x, q, part), key = product(x, k, part),
                   value = product(x, v, part);
      if (part == Part::better)
        return mean(square(nn::scaled_dot_product_attention(query, key, value)));
      const Tensor scores = product(query, transpose(key, -1, -2), part);
      return mean(square(product(softmax(scores * 0.1, -1), value, part)));
    });
  };
}

// --- Bandwidth, and arithmetic without products ---

// Elementwise calls on n rows of 2048 numbers.
template <class F>
Make elementwise(std::int64_t rows, F f) {
  return [=](Mode mode, Part part) -> measure::Step {
    const Tensor x = randn({rows_of(part, rows), part == Part::calls ? 8 : 2048}),
                 y = randn_like(x);
    return compile([=] { return mean(f(x, y, part)); }, {.mode = mode});
  };
}

Tensor residuals(const Tensor& x, const Tensor& y, Part) { return maximum(x + y, 0) + y; }
Tensor normalized(const Tensor& x, const Tensor& y, Part) { return layer_norm(x + y, 1); }
Tensor joined(const Tensor& x, const Tensor& y, Part) { return cat({x, y}, 1); }
// Without arithmetic: as many calls, on as many bytes.
template <int times>
Tensor functions(const Tensor& x, const Tensor& y, Part part) {
  Tensor z = x;
  for (int i = 0; i < times; ++i)
    z = part == Part::no_arithmetic ? abs(abs(z) * y + z) : tanh(sin(z) * y + z);
  return z;
}

Make updates(std::int64_t millions) {
  return [=](Mode mode, Part part) -> measure::Step {
    const Tensor w = requires_grad_(randn({part == Part::calls ? 16 : millions << 20}));
    const auto optimizer =
        std::make_shared<optim::Optimizer>(std::vector<Tensor>{w}, optim::adam(1e-3));
    return compile(
        [optimizer, w] {
          optimizer->zero_grad();
          const Tensor loss = sum(w);
          backward(loss);
          optimizer->step();
          return detach(loss);
        },
        {.mode = mode});
  };
}

Make looked_up(std::int64_t count) {
  return [=](Mode mode, Part part) -> measure::Step {
    const Tensor table = randn({part == Part::calls ? 64 : 65536, 256});
    const Tensor index = randint(0, table.size(0), {rows_of(part, count)});
    return compile([=] { return mean(embedding(table, index)); }, {.mode = mode});
  };
}

// --- Slow kernels ---

// Rows of few numbers; better: as a product.
Make short_sums(std::int64_t rows, std::int64_t columns) {
  return [=](Mode mode, Part part) -> measure::Step {
    const Tensor x = randn({rows_of(part, rows), columns}), one = ones({columns, 1});
    return compile(
        [=] { return mean(square(part == Part::better ? matmul(x, one) : sum(x, {1}, true))); },
        {.mode = mode});
  };
}

// Products whose width is not a multiple of a vector's; better: 8 more.
Make products(std::int64_t rows, std::int64_t width, DType dtype) {
  return [=](Mode mode, Part part) -> measure::Step {
    const std::int64_t n = part == Part::calls    ? 8
                           : part == Part::better ? width / 8 * 8 + 8
                                                  : width;
    const Tensor x = cast(randn({rows_of(part, rows), n}), dtype), w = cast(randn({n, n}), dtype);
    return compile([=] { return mean(cast(product(x, w, part), f32)); }, {.mode = mode});
  };
}

// Sums of rows into few places; better: as a product with the places as ones.
Make scattered(std::int64_t rows, std::int64_t places) {
  return [=](Mode mode, Part part) -> measure::Step {
    const std::int64_t n = rows_of(part, rows);
    const Tensor x = randn({n, 64}), index = randint(0, places, {n}), base = zeros({places, 64});
    const Tensor which = transpose(cast(one_hot(index, places), f32), 0, 1);
    const Tensor wide = contiguous(expand(reshape(index, {n, 1}), {n, 64}));
    return compile(
        [=] {
          return mean(
              square(part == Part::better ? matmul(which, x) : scatter_add(base, 0, wide, x)));
        },
        {.mode = mode});
  };
}

// Better: another pass over the bytes, since a scan of many rows needs no more time than that.
Make running_sums(std::int64_t rows) {
  return [=](Mode mode, Part part) -> measure::Step {
    const Tensor x = randn({rows_of(part, rows), 256});
    return compile([=] { return mean(square(part == Part::better ? x + x : cumsum(x, 1))); },
                   {.mode = mode});
  };
}

// With as much work as the device needs.
std::vector<Prepared> prepared(Device device) {
  const std::int64_t n = device.is_cuda() ? 16 : 1, wide = device.is_cuda() ? 4 : 1;
  constexpr Mode eager = Mode::eager, graph = Mode::graph, fused = Mode::fused;
  const std::vector own = {Part::no_own_code}, small = {Part::calls},
                    work = {Part::calls, Part::no_arithmetic}, slow = {Part::calls, Part::better},
                    all = {Part::calls, Part::no_arithmetic, Part::better};
  return {{"parsed-rows", graph, own, fed_by(parsed)},
          {"awaited-rows", graph, own, fed_by(awaited)},
          {"augmented-rows", fused, own, fed_by(augmented)},
          {"shuffled-rows", eager, own, fed_by(shuffled)},
          {"tiny-mlp", eager, work, mlp(4, 16, 4)},
          {"tiny-mlp", graph, work, mlp(4, 16, 4)},
          {"deep-mlp", fused, work, mlp(4, 8, 48)},
          {"recurrent", graph, small, recurrent(32)},
          {"recurrent", eager, small, recurrent(32)},
          {"many-parameters", eager, small, many_parameters(60)},
          {"ode", eager, small, ode(10)},
          {"ode", graph, small, ode(10)},
          {"short-attention", eager, work, attention(8, 16)},
          {"residuals", eager, work, elementwise(n * 4096, residuals)},
          {"residuals", graph, work, elementwise(n * 4096, residuals)},
          {"residuals", fused, work, elementwise(n * 4096, residuals)},
          {"normalized", graph, work, elementwise(n * 4096, normalized)},
          {"joined", graph, work, elementwise(n * 2048, joined)},
          {"updates", fused, work, updates(n * 8)},
          {"one-row", graph, work, mlp(1, wide * 2048, 3)},
          {"looked-up", eager, work, looked_up(n * 32768)},
          {"mlp", eager, work, mlp(n * 512, wide * 512, 3)},
          {"mlp", fused, work, mlp(n * 512, wide * 512, 3)},
          {"double-mlp", graph, work, mlp(n * 256, wide * 512, 3, f64)},
          {"long-attention", graph, all, attention(wide * 512, 64)},
          {"functions", fused, work, elementwise(n * 1024, functions<4>)},
          {"functions", graph, work, elementwise(n * 1024, functions<4>)},
          {"short-sums", graph, slow, short_sums(n << 17, 32)},
          {"odd-products", graph, all, products(n * 4096, 257, bf16)},
          {"scattered", graph, slow, scattered(n << 16, 16)},
          {"running-sums", graph, slow, running_sums(n << 14)}};
}

// --- Commands ---

void finish(Device device) {
  if (device.is_cuda()) synchronize(device);
}

// The least of batches' means, all parts in turn.
void time_parts(const Prepared& step, Mode mode, double seconds, Device device) {
  using Clock = std::chrono::steady_clock;
  std::vector<Part> parts = {Part::whole};
  parts.insert(parts.end(), step.parts.begin(), step.parts.end());
  std::vector<measure::Step> steps;
  std::vector<int> calls;
  for (const Part part : parts) {
    manual_seed(0);
    steps.push_back(step.make(mode, part));
    for (int i = 0; i < 10; ++i) steps.back()();
    finish(device);
    const auto start = Clock::now();
    for (int i = 0; i < 3; ++i) steps.back()();
    finish(device);
    const std::chrono::duration<double> once = (Clock::now() - start) / 3;
    calls.push_back(std::max(1, static_cast<int>(0.01 / once.count())));
  }
  std::vector<double> least(parts.size(), 1e300);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (int round = 0; round < 3 || Clock::now() < end; ++round) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto start = Clock::now();
      for (int call = 0; call < calls[i]; ++call) steps[i]();
      finish(device);
      const std::chrono::duration<double, std::micro> time = Clock::now() - start;
      least[i] = std::min(least[i], time.count() / calls[i]);
    }
  }
  for (std::size_t i = 0; i < parts.size(); ++i)
    std::printf("%s\t%.3f\n", kParts[static_cast<std::size_t>(parts[i])], least[i]);
}

int run(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  bool on_cuda = false;
  for (int i = 1; i < argc; ++i) on_cuda |= std::string(argv[i]) == "cuda";
  const Device device = on_cuda ? cuda() : Device::cpu();
  const std::vector<Prepared> all = prepared(device);
  if (command == "list") {
    for (const Prepared& each : all)
      std::printf("%s\t%s\n", each.name.c_str(), measure::name_of(each.mode));
    return 0;
  }
  if (command == "parts" && argc > 4) {
    const DeviceGuard guard(device);
    const auto found = std::ranges::find(all, argv[3], &Prepared::name);
    if (found == all.end()) {
      std::fprintf(stderr, "no step %s: see prepared_steps list\n", argv[3]);
      return 1;
    }
    const std::string named = argv[4];
    const Mode mode = named == "eager" ? Mode::eager : named == "graph" ? Mode::graph : Mode::fused;
    time_parts(*found, mode, std::atof(argv[2]), device);
    return 0;
  }
  std::vector<measure::Model> models;
  for (const Prepared& each : all) {
    if (!models.empty() && models.back().name == each.name) continue;
    models.push_back({.name = each.name, .make = [make = each.make](Mode mode, Remat) {
                        return make(mode, Part::whole);
                      }});
  }
  return measure::main(argc, argv, models);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
