// README's program: a training step run eagerly, as a replayed graph, and as fused kernels.
#include <brrr/brrr.h>
#include <brrr/measure/timing.h>

#include <cstdio>

using namespace brrr;

int main() try {
  set_default_device(cuda_is_available() ? cuda() : Device::cpu());
  nn::MLP model({64, 64, 64, 64, 1});
  optim::Optimizer optimizer(model, optim::adam(1e-3));
  const Tensor x = randn({32, 64}), y = sin(sum(x, 1, /*keepdim=*/true));
  const auto train = [&] {
    optimizer.zero_grad();
    backward(nn::mse_loss(model(x), y));
    optimizer.step();
  };
  auto eager = compile(train, {.mode = Mode::eager}), graph = compile(train, {.mode = Mode::graph}),
       fused = compile(train, {.mode = Mode::fused});
  const auto batch = [&](auto& s) { return measure::synchronized_batch(x.device(), std::ref(s)); };
  const auto times = measure::time_all({{batch(eager), batch(graph), batch(fused)}});  // in turn
  const char* names[] = {"eager", "graph", "fused"};
  for (std::size_t i = 0; i < 3; ++i)
    std::printf("%s %6.1f us a step, %4.2f times eager's speed\n", names[i], times[i].median * 1e6,
                times[0].median / times[i].median);
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
