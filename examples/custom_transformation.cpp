// A custom optimizer: a new transformation in ten lines, chained with built-in ones, fits the four
// coefficients of a linear function.
#include <brrr/brrr.h>

#include <cstdio>

using namespace brrr;
using namespace brrr::optim;

// The sign of a running average of the gradients ("signum").
Transformation sign_of_average(double decay) {
  return Transformation(
      [](std::span<const Tensor> params) {
        std::vector<Tensor> zeros;
        for (const Tensor& param : params) zeros.push_back(zeros_like(param));
        return State().add("average", zeros);
      },
      [=](std::vector<Tensor> updates, State& state, std::span<const Tensor> params) {
        std::vector<Tensor>& averages = state.list("average", params);
        for (std::size_t i = 0; i < updates.size(); ++i) {
          updates[i] = sign(lerp_(averages[i], updates[i], 1 - decay));
        }
        return updates;
      });
}

int main() try {
  manual_seed(1);
  const Tensor truth = tensor({0.5f, -1, 2, -0.25f});
  const Tensor x = randn({256, 4}), y = matmul(x, truth);

  Tensor weight = requires_grad_(zeros({4}));
  const Schedule rate = warmup_cosine_decay_schedule(0, 0.05, 20, 200);
  Optimizer optimizer({weight},
                      chain(clip_by_global_norm(10), sign_of_average(0.5),
                            inject_hyperparams({{"rate", rate}}, [](const Hyperparameters& now) {
                              return scale_by_learning_rate(now["rate"]);
                            })));
  double loss_value = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor loss = mean(square(matmul(x, weight) - y));
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (step % 40 == 0 || step == 199) {  // reading waits for the device; the step itself does not
      loss_value = item(loss);
      std::printf("step %3d  loss %.6f  rate %.5f\n", step, loss_value,
                  item(optimizer.hyperparameter("rate")));
    }
  }
  std::printf("weight = %s\n", to_string(weight).c_str());
  return loss_value < 1e-4 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
