// Long chains of pointwise calls. The kernels of a fused step recompute values that the backward
// pass of a replayed graph reads from memory; Remat::full() recomputes the rest. No memory between
// kernels remains. Time falls where memory bandwidth is the limit, but not on a CPU, where
// computing tanh and sin again takes longer than reading their results.
#include <brrr/brrr.h>

#include <chrono>
#include <cstdio>

using namespace brrr;

namespace {

void run(const char* name, Mode mode, Remat remat) {
  manual_seed(0);
  const Tensor x = requires_grad_(randn({1 << 20}));
  auto step = compile(
      [&] {
        zero_grad(x);
        Tensor h = x;
        for (int round = 0; round < 10; ++round) h = tanh(h) * 1.5 + sin(h);
        const Tensor loss = log(sum(square(h)));  // its gradient needs the sum first
        backward(loss);
        return detach(loss);
      },
      {.mode = mode, .remat = remat});
  for (int i = 0; i < 3; ++i) step();
  synchronize(x.device());
  constexpr int kSteps = 20;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) step();
  synchronize(x.device());
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  const CompiledEntry entry = step.report().entries[0];
  std::printf("%-12s %6.2f ms a step, %5.1f MiB between its kernels\n", name, time.count() / kSteps,
              static_cast<double>(entry.arena_bytes) / (1 << 20));
}

}  // namespace

int main() try {
  set_default_device(cuda_is_available() ? cuda() : Device::cpu());
  run("graph", Mode::graph, Remat::none());
  run("fused", Mode::fused, Remat::none());
  run("fused, full", Mode::fused, Remat::full());
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
