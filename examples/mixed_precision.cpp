// Mixed precision: parameters and their updates in f32, products and activations in bf16. In the
// fused mode small products read the f32 weights and round them on the way to the tensor cores, so
// no kernel converts them; larger weights are converted first.
#include <brrr/brrr.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

using namespace brrr;

// A linear layer that computes in the type of its input.
class MixedLinear : public nn::Linear {
 public:
  using nn::Linear::Linear;
  Tensor forward(const Tensor& x) override {
    return linear(x, cast(weight, x.dtype()), cast(bias, x.dtype()));
  }
};

struct Run {
  double us, loss;  // of a step
};

Run train(std::int64_t batch, std::int64_t width, int layers, Mode mode) {
  manual_seed(0);
  nn::Sequential model;
  for (int layer = 0; layer < layers; ++layer) {
    model.add<MixedLinear>(width, width);
    if (layer + 1 < layers) model.add<nn::Function>(gelu_tanh);
  }
  optim::Optimizer optimizer(model, optim::adam(1e-3));
  const Tensor x = randn({batch, width}), y = randn({batch, width});
  auto step = compile(
      [&](const Tensor& inputs, const Tensor& targets) {
        optimizer.zero_grad();
        const Tensor loss = nn::mse_loss(cast(model(cast(inputs, bf16)), f32), targets);
        backward(loss);
        optimizer.step();
        return detach(loss);
      },
      {.mode = mode});

  const int steps = x.device().is_cuda() ? 2000 : 10;
  Tensor loss;
  for (int i = 0; i < steps; ++i) loss = step(x, y);
  synchronize(x.device());
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) loss = step(x, y);
  synchronize(x.device());
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  return {time.count() / steps, item(loss)};
}

void compare(std::int64_t batch, std::int64_t width, int layers) {
  const Run graph = train(batch, width, layers, Mode::graph),
            fused = train(batch, width, layers, Mode::fused);
  std::printf("%lld x %lld x %d: graph %.1f us a step, fused %.1f; losses %.4g and %.4g\n",
              static_cast<long long>(batch), static_cast<long long>(width), layers, graph.us,
              fused.us, graph.loss, fused.loss);
}

// Without arguments two small models; else batch, width and layers of one.
int main(int count, char** arguments) try {
  set_default_device(cuda_is_available() ? cuda() : Device::cpu());
  if (count == 4) {
    compare(std::atoi(arguments[1]), std::atoi(arguments[2]), std::atoi(arguments[3]));
  } else {
    compare(32, 64, 4);
    compare(128, 256, 8);
  }
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
