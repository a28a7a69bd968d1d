// Modules, data and flat parameters together: small models learn.
#include "tests/harness/catch.h"
#include "tests/harness/nn_reference.h"

using namespace brrr;

namespace {

// Steps of gradient descent with momentum on what the batcher gives; the first loss and the last.
std::pair<double, double> train(nn::Module& model, data::Batcher& batches, int steps, double rate) {
  nn::Parameters parameters(model);
  Tensor values = parameters.values()[0];
  const Tensor velocity = zeros_like(values);
  double first = 0, last = 0;
  for (int step = 0; step < steps; ++step) {
    const data::Batch& batch = batches.next();
    parameters.zero_grad();
    const Tensor loss = nn::cross_entropy(model(batch.inputs), batch.targets);
    backward(loss);
    const NoGrad constant;
    Tensor moved = velocity;
    mul_(moved, 0.9);
    sub_(moved, parameters.gradients()[0] * rate);
    add_(values, moved);
    last = item(loss);
    if (step == 0) first = last;
  }
  return {first, last};
}

}  // namespace

TEST_CASE("nn: an MLP classifies two spirals", "[nn]") {
  manual_seed(1);
  const data::Dataset spirals = data::two_spirals(512);
  nn::MLP model({2, 32, 32, 2});
  data::Batcher batches(spirals, {.batch = 128, .device = cpu});
  const auto [first, last] = train(model, batches, 1500, 0.1);
  CHECK(first == Approx(std::log(2)).margin(0.1));
  CHECK(last < 0.1);
  const Tensor right = eq(argmax(model(spirals.inputs), 1), spirals.targets);
  CHECK(item(mean(to(right, f32))) > 0.97);
}

TEST_CASE("nn: a transformer learns characters", "[nn]") {
  manual_seed(2);
  const std::string text = data::generate_text(4000);
  const data::Characters characters(text);
  nn::Transformer model(
      {.vocabulary = characters.size(), .length = 24, .width = 32, .heads = 4, .layers = 1});
  data::Batcher batches(data::next_token_windows(characters.encode(text), 24, 5),
                        {.batch = 16, .device = cpu});
  const auto [first, last] = train(model, batches, 120, 0.1);
  CHECK(first == Approx(std::log(characters.size())).margin(0.2));
  CHECK(last < 0.7 * first);
}
