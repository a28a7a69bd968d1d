// A step of one's own in all modes: what bounds it, and which mode is fastest.
#include <brrr/brrr.h>
#include <brrr/measure/compare.h>
#include <brrr/measure/compare_text.h>

#include <cstdio>
#include <memory>

using namespace brrr;

// Two towers, whose outputs are compared: no model of the library.
struct Towers {
  nn::MLP left{{32, 64, 16}}, right{{32, 64, 16}};
  optim::Optimizer left_steps{left, optim::adam(1e-3)}, right_steps{right, optim::adam(1e-3)};
  Tensor a = randn({64, 32}), b = randn({64, 32}), alike = rand({64, 1});

  Tensor train() {
    left_steps.zero_grad();
    right_steps.zero_grad();
    const Tensor score = sum(left(a) * right(b), 1, true);
    const Tensor loss = nn::mse_loss(sigmoid(score), alike);
    backward(loss);
    left_steps.step();
    right_steps.step();
    return detach(loss);
  }
};

int main() try {
  const auto make = [](Mode mode, Remat remat) {
    const auto towers = std::make_shared<Towers>();
    return compile([towers] { return towers->train(); }, {.mode = mode, .remat = remat});
  };
  const measure::Comparison found = measure::compare("towers", make, {.seconds = 0.2});
  std::fputs(to_text(found).c_str(), stdout);
  return found.status();
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
