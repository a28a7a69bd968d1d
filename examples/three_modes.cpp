// README's program: a training step run eagerly, as a replayed graph, and as fused kernels.
#include <brrr/brrr.h>

#include <chrono>
#include <cstdio>

using namespace brrr;

// An op of our own: differentiated, traced and fused like a built-in one.
Tensor snake(const Tensor& x) {
  static const auto op =
      register_op({.name = "snake",
                   .expression = "a + sin(a) * sin(a)",
                   .gradient = [](auto& r) { r.set(0, r.g() * (1 + sin(2 * r.operand(0)))); },
                   .needs = "a"});
  return call_op(op, {x});
}

double train(const char* name, Mode mode) {
  manual_seed(0);
  nn::Sequential model;
  for (int layer = 0; layer < 3; ++layer) {
    model.add<nn::Linear>(64, 64);
    model.add<nn::LayerNorm>(64);
    model.add<nn::Function>(snake);
  }
  model.add<nn::Linear>(64, 1);
  optim::Optimizer optimizer(model, optim::adam(3e-3));
  const Tensor x = randn({32, 64}), y = sin(sum(x, 1, /*keepdim=*/true));

  auto step = compile(
      [&](const Tensor& inputs, const Tensor& targets) {
        optimizer.zero_grad();
        const Tensor loss = nn::mse_loss(model(inputs), targets);
        backward(loss);
        optimizer.step();
        return detach(loss);
      },
      {.mode = mode});

  Tensor loss;
  for (int i = 0; i < 200; ++i) loss = step(x, y);
  synchronize(x.device());
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 300; ++i) loss = step(x, y);
  const double last = item(loss);  // waits for the device
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  std::printf("%s %6.1f us a step, loss %.9g\n", name, time.count() / 300, last);
  return last;
}

int main() try {
  set_default_device(cuda_is_available() ? cuda() : Device::cpu());
  const double eager = train("eager", Mode::eager), graph = train("graph", Mode::graph),
               fused = train("fused", Mode::fused);
  std::printf("loss minus eager's: graph %g, fused %g\n", graph - eager, fused - eager);
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
