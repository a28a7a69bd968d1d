// Choices by times that are drawn at random, over steps that are: what is fused again must be a
// graph each time, the parts that are timed as well.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include <brrr/autograd/autograd.h>
#include <brrr/graph/choose.h>
#include <brrr/graph/passes.h>
#include <brrr/graph/trace.h>
#include <brrr/measure/sweep_steps.h>
#include <brrr/nn/optim/optimizer.h>
#include <brrr/nn/optim/optimizers.h>
#include <brrr/nn/parameters.h>

#include "tests/harness/catch.h"

namespace brrr::test {

inline graph::Graph traced_step(const measure::DrawnStep& drawn) {
  measure::DrawnModel model = drawn.make();
  nn::Parameters parameters(*model.module);
  optim::Optimizer optimizer(parameters, optim::adam(1e-3));
  graph::Trace trace("traced", {});
  optimizer.zero_grad();
  const Tensor loss = model.loss();
  backward(loss);
  optimizer.step();
  graph::Graph graph = trace.finish(std::vector<Tensor>{detach(loss)});
  graph::remove_dead(graph);
  for (const graph::Pass& pass : graph::kPasses) pass.run(graph);
  return graph;
}

// BRRR_SEED=n draws other steps, BRRR_PROGRAMS=n so many.
inline void check_random_choices(Device device, std::uint64_t seed, int steps) {
  if (const char* asked = std::getenv("BRRR_SEED")) seed = std::strtoull(asked, nullptr, 10);
  if (const char* asked = std::getenv("BRRR_PROGRAMS")) steps = std::atoi(asked);
  int apart = 0;
  for (int number = 0; number < steps; ++number) {
    const measure::DrawnStep drawn = measure::draw_step(seed, number, device, 1e8);
    INFO(drawn.name);
    const graph::Graph graph = traced_step(drawn);
    std::uint64_t state = seed;
    const graph::Graph* verified = nullptr;
    for (int i = 0; i < 2; ++i) {
      const graph::ChoiceOptions options{
          .fuse =
              [](graph::Graph& each) {
                graph::fuse(each);
                graph::verify(each, "fuse");
              },
          .program = {},
          .arguments = {},
          .same_bits = true,
          .time_of = [&](const graph::KernelTimer::Kernel& kernel) -> std::optional<std::int64_t> {
            if (std::exchange(verified, kernel.graph) != kernel.graph)
              graph::verify(*kernel.graph, "fuse of a part");
            state = state * 6364136223846793005 + 1442695040888963407;
            // Kernels of many calls are slow ones, so that their parts are tried, and often win.
            const bool is_slow = kernel.node->calls.size() > 1 && state >> 63;
            return 1 + static_cast<std::int64_t>(state >> 40) * (is_slow ? 1'000'000 : 1);
          }};
      CHECK_NOTHROW(apart += static_cast<int>(graph::choose_apart(graph, options).size()));
    }
  }
  CHECK(apart > steps);
}

}  // namespace brrr::test
