// Compiles an existing function: one entry per shape, the report of the trace, and the error for a
// function that reads a value.
#include <brrr/brrr.h>

#include <algorithm>
#include <cstdio>

using namespace brrr;

// Scales rows and columns alternately until each sums to one (Sinkhorn and Knopp).
Tensor doubly_stochastic(const Tensor& scores, int rounds) {
  Tensor x = scores;
  for (int i = 0; i < rounds; ++i) {
    x = x - logsumexp(x, {1}, /*keepdim=*/true);
    x = x - logsumexp(x, {0}, /*keepdim=*/true);
  }
  return exp(x);
}

// The same until the rows have converged: the number of rounds depends on values.
Tensor until_close(const Tensor& scores) {
  Tensor x = doubly_stochastic(scores, 1);
  while (item(max(abs(sum(x, {1}) - 1.0))) > 1e-3) x = doubly_stochastic(log(x), 1);
  return x;
}

int main() try {
  const Device device = cuda_is_available() ? cuda() : Device::cpu();
  manual_seed(0);
  auto balance = compile(doubly_stochastic, {.name = "balance"});

  bool good = true;
  for (const std::int64_t n : {8, 8, 8, 32}) {
    const Tensor scores = randn({n, n}, {.device = device});
    const Tensor result = balance(scores, 10);
    good = good && item(all(eq(result, doubly_stochastic(scores, 10)))) == 1;
  }
  std::printf("%s\n%s\n", good ? "replays have the function's bits" : "a replay differs",
              balance.explain().c_str());
  const std::string text = balance.graph_text();
  std::size_t end = 0;
  for (int line = 0; line < 8; ++line) end = text.find('\n', end) + 1;
  std::printf("the first lines of %d:\n%s\n", static_cast<int>(std::ranges::count(text, '\n')),
              text.substr(0, end).c_str());

  auto refused = compile(until_close, {.name = "until_close"});
  try {
    refused(randn({8, 8}, {.device = device}));
    good = false;
  } catch (const Error& error) {
    std::printf("refused as expected: %s\n", error.what());
  }
  return good && balance.report().entries.size() == 2 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
