// README's program: a training step run eagerly, then compiled and replayed as a graph.
#include <brrr/brrr.h>

#include <chrono>
#include <cstdio>

using namespace brrr;

void train(const char* name, Mode mode) {
  manual_seed(0);
  nn::MLP model({64, 64, 64, 64, 1});
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
}

int main() {
  set_default_device(cuda_is_available() ? cuda() : cpu);
  train("eager", Mode::eager);
  train("graph", Mode::graph);
}
