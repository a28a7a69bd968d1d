// A classifier of points on two spirals: data, a model, a loss, an optimizer, and a loop.
#include <brrr/brrr.h>

#include <cstdio>

using namespace brrr;

// The fraction of points that are classified correctly.
double accuracy(nn::Module& model, const data::Dataset& points, Device device) {
  const NoGrad constant;
  const Tensor chosen = argmax(model(to(points.inputs, device)), 1);
  return item(mean(cast(eq(chosen, to(points.targets, device)), f32)));
}

int main() try {
  const Device device = cuda_is_available() ? cuda() : Device::cpu();
  manual_seed(0);
  nn::MLP model({2, 64, 64, 2}, {.device = device});

  const int steps = 600;
  const optim::Schedule rate = optim::warmup_cosine_decay_schedule(0, 1e-2, 20, steps);
  optim::Optimizer optimizer(model, optim::adam(rate));

  const data::Dataset held_out = data::two_spirals(1000, 0.02, 1.5, /*seed=*/1);
  data::Batcher batches(data::two_spirals(1000), {.batch = 250, .device = device});
  std::printf("step    loss  accuracy on held-out points\n");
  double reached = 0;
  for (int step = 1; step <= steps; ++step) {
    const data::Batch& batch = batches.next();
    const Tensor loss = nn::cross_entropy(model(batch.inputs), batch.targets);
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (step % 50 == 0) {
      reached = accuracy(model, held_out, device);
      std::printf("%4d  %.4f  %5.1f %%\n", step, item(loss), 100 * reached);
    }
  }
  return reached >= 0.99 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
