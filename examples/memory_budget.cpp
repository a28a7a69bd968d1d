// Rematerialization trades time for memory: a budget for the activations of a deep transformer's
// training step, and the time that recomputing some of them takes.
#include <brrr/brrr.h>

#include <chrono>
#include <cstdio>

using namespace brrr;

namespace {

constexpr int kLayers = 12;
constexpr std::int64_t kBatch = 4, kLength = 64, kWidth = 64;

void train(const char* name, Remat remat) {
  manual_seed(0);
  nn::Sequential model;
  for (int i = 0; i < kLayers; ++i) model.add<nn::TransformerBlock>(kWidth, /*heads=*/4);
  optim::Optimizer optimizer(model, optim::adam(1e-3));
  const Tensor x = randn({kBatch, kLength, kWidth}), y = sin(x);
  auto step = compile(
      [&] {
        optimizer.zero_grad();
        const Tensor loss = nn::mse_loss(model(x), y);
        backward(loss);
        optimizer.step();
        return detach(loss);
      },
      {.remat = remat});
  Tensor loss;
  for (int i = 0; i < 3; ++i) loss = step();
  synchronize(x.device());
  constexpr int kSteps = 10;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) loss = step();
  synchronize(x.device());
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  std::printf("%-12s %6.2f ms a step, %5.1f MiB of activations, loss %.9g\n", name,
              time.count() / kSteps,
              static_cast<double>(step.report().entries[0].arena_bytes) / (1 << 20), item(loss));
}

}  // namespace

int main() try {
  set_default_device(cuda_is_available() ? cuda() : Device::cpu());
  train("none", Remat::none());
  train("budget(0.5)", Remat::budget(0.5));
  train("budget(0.25)", Remat::budget(0.25));
  train("full", Remat::full());
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
