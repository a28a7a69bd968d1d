// A program of another project that compares a step of its own; exits with 1 if its losses differ.
#include <brrr/brrr.h>
#include <brrr/measure/compare.h>
#include <brrr/measure/compare_text.h>

#include <cstdio>
#include <memory>

int main() {
  using namespace brrr;
  const auto make = [](Mode mode, Remat remat) {
    const auto net = std::make_shared<nn::MLP>(std::vector<std::int64_t>{8, 16, 8});
    const auto optimizer = std::make_shared<optim::Optimizer>(*net, optim::adam(1e-3));
    const Tensor x = randn({4, 8}), y = randn({4, 8});
    return compile(
        [=] {
          optimizer->zero_grad();
          const Tensor loss = nn::mse_loss((*net)(x), y);
          backward(loss);
          optimizer->step();
          return loss;
        },
        {.mode = mode, .remat = remat});
  };
  const measure::Comparison found = measure::compare("my net", make, {.steps = 4, .seconds = 0.02});
  std::fputs(measure::to_text(found).c_str(), stdout);
  return found.status();
}
