// An MLP trained by calling its step and by replaying it: one word apart, and the same bits.
#include <brrr/brrr.h>

#include <chrono>
#include <cstdio>

using namespace brrr;

struct Run {
  Tensor losses;
  double microseconds;  // a step
};

Run train(Mode mode, Device device) {
  manual_seed(0);
  nn::MLP model({64, 64, 64, 64, 1}, {.device = device});
  optim::Optimizer optimizer(model, optim::adam(3e-3));
  const Tensor x = randn({32, 64}, {.device = device});
  const Tensor y = sin(sum(x, {1}, /*keepdim=*/true));

  auto step = compile(
      [&](const Tensor& inputs, const Tensor& targets) {
        optimizer.zero_grad();
        const Tensor loss = nn::mse_loss(model(inputs), targets);
        backward(loss);
        optimizer.step();
        return detach(loss);
      },
      {.mode = mode});

  std::vector<Tensor> losses;
  for (int i = 0; i < 200; ++i) losses.push_back(step(x, y));
  synchronize(device);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 300; ++i) losses.push_back(step(x, y));
  synchronize(device);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  return {to(stack(losses), cpu), time.count() / 300};
}

int main() {
  const Device device = cuda_is_available() ? cuda() : cpu;
  const Run eager = train(Mode::eager, device), graph = train(Mode::graph, device);
  const bool agree = item(all(eq(eager.losses, graph.losses))) == 1;
  std::printf("on %s\neager  %7.1f us a step\ngraph  %7.1f us a step, %.2f times as fast\n",
              to_string(device).c_str(), eager.microseconds, graph.microseconds,
              eager.microseconds / graph.microseconds);
  std::printf("loss %.4f to %.6f, %s\n", item(select(graph.losses, 0, 0)),
              item(select(graph.losses, 0, -1)),
              agree ? "the same bits in all 500 steps" : "but the modes disagree");
  return agree && item(select(graph.losses, 0, -1)) < 0.01 ? 0 : 1;
}
