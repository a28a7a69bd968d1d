// State that changes between steps also changes between replays: the learning rate of a schedule,
// dropout's masks, a step counter. All of it is on the device.
#include <brrr/brrr.h>

#include <cstdio>

using namespace brrr;
using namespace brrr::optim;

constexpr int kSteps = 40;

struct Run {
  Tensor losses, rates;
};

Run train(Mode mode, Device device) {
  manual_seed(3);
  nn::Sequential model;
  model.add<nn::Linear>(16, 64, Options{.device = device});
  model.add<nn::Dropout>(0.2);
  model.add<nn::Linear>(64, 1, Options{.device = device});
  const Schedule rate = warmup_cosine_decay_schedule(0, 1e-2, 10, kSteps);
  Optimizer optimizer(model,
                      chain(clip_by_global_norm(1.0),
                            inject_hyperparams({{"rate", rate}}, [](const Hyperparameters& now) {
                              return adam(now["rate"]);
                            })));
  const Tensor x = randn({64, 16}, {.device = device}), y = sum(x, {1}, /*keepdim=*/true);

  auto step = compile(
      [&] {
        optimizer.zero_grad();
        const Tensor loss = nn::mse_loss(model(x), y);
        backward(loss);
        optimizer.step();
        return std::pair(detach(loss), clone(optimizer.hyperparameter("rate")));
      },
      {.mode = mode, .frozen_rate = OnFrozenRate::refuse});  // throws if a rate is a constant

  std::vector<Tensor> losses, rates;
  for (int i = 0; i < kSteps; ++i) {
    const auto [loss, now] = step();
    losses.push_back(loss);
    rates.push_back(now);
  }
  return {to(stack(losses), Device::cpu()), to(stack(rates), Device::cpu())};
}

int main() try {
  const Device device = cuda_is_available() ? cuda() : Device::cpu();
  const Run eager = train(Mode::eager, device), graph = train(Mode::graph, device);
  for (int i = 0; i < kSteps; i += 8) {
    std::printf("step %2d  rate %.5f  loss %.5f\n", i, item(select(graph.rates, 0, i)),
                item(select(graph.losses, 0, i)));
  }
  const bool agree = item(all(eq(eager.losses, graph.losses))) == 1 &&
                     item(all(eq(eager.rates, graph.rates))) == 1;
  std::printf("%s\n", agree ? "eager and graph mode have the same bits" : "the modes differ");

  // The same input gets another mask in each replay.
  auto drop = compile([](const Tensor& x) { return dropout(x, 0.5); });
  const Tensor x = ones({1000}, {.device = device});
  const Tensor first = drop(x), second = drop(x), third = drop(x);
  const double kept = item(mean(cast(eq(second, third), f32)));
  std::printf("two masks agree in %.0f %% of their elements\n", 100 * kept);
  const bool moves = kept > 0.4 && kept < 0.6 && item(all(eq(first, second))) == 0;
  return agree && moves ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
