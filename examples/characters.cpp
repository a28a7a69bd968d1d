// A character-level transformer, trained on sentences of a small grammar.
#include <brrr/brrr.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

using namespace brrr;

constexpr std::int64_t kLength = 32;

// Extends `text` by greedy decoding.
std::string complete(nn::Module& model, const data::Characters& characters, std::string text,
                     std::size_t length, Device device) {
  const NoGrad constant;
  while (text.size() < length) {
    const std::string seen = text.substr(text.size() - std::min<std::size_t>(text.size(), kLength));
    const Tensor logits = model(unsqueeze(to(characters.encode(seen), device), 0));
    const Tensor last = select(select(logits, 0, 0), 0, -1);
    text += characters.decode(unsqueeze(to(argmax(last), Device::cpu()), 0));
  }
  return text;
}

int main() try {
  const Device device = cuda_is_available() ? cuda() : Device::cpu();
  manual_seed(0);
  const std::string text = data::generate_text(20'000);
  const data::Characters characters(text);

  nn::Transformer model(
      {.vocabulary = characters.size(), .length = kLength, .width = 48, .heads = 4, .layers = 2},
      {.device = device});
  nn::Parameters parameters(model);
  const int steps = 300;
  optim::Optimizer optimizer(
      parameters,
      optim::chain(optim::clip_by_global_norm(1),
                   optim::adamw(optim::warmup_cosine_decay_schedule(0, 5e-3, 20, steps), 0.01)));

  data::Batcher batches(data::next_token_windows(characters.encode(text), kLength, /*stride=*/7),
                        {.batch = 16, .device = device});
  const double guessing = std::log(static_cast<double>(characters.size()));
  std::printf("%lld parameters, %lld characters; guessing costs %.3f\n",
              static_cast<long long>(parameters.numel()), static_cast<long long>(characters.size()),
              guessing);
  double loss_value = 0;
  for (int step = 1; step <= steps; ++step) {
    const data::Batch& batch = batches.next();
    const Tensor loss = nn::cross_entropy(model(batch.inputs), batch.targets);
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (step % 30 == 0) {
      loss_value = item(loss);
      std::printf("step %3d  loss %.3f\n", step, loss_value);
    }
  }
  model.eval();
  std::printf("%s\n", complete(model, characters, "the ", 120, device).c_str());
  return loss_value < 0.3 * guessing ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
