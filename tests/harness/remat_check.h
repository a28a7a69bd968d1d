// Graphs for tests of rematerialization.
#pragma once

#include <functional>
#include <string>

#include "brrr/graph/passes.h"
#include "brrr/graph/rematerialize.h"
#include "brrr/graph/trace.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/samples.h"
#include <brrr/brrr.h>

namespace brrr::test {

constexpr graph::PlanOptions kOnCpu = {false, false, false};

// The graph of a step, as rematerialization gets it.
inline graph::Graph traced(const std::function<Tensor()>& step) {
  graph::Trace trace("traced", {});
  graph::Graph graph = trace.finish(Tensors{step()});
  remove_dead(graph);
  for (const graph::Pass& pass : graph::kPasses) {
    if (pass.in_graph_mode) pass.run(graph);
  }
  return graph;
}

// Rewrites the graph of a step of which each call is a kernel.
inline graph::RematReport applied(graph::Graph& graph, Remat policy) {
  return rematerialize(graph, {.policy = policy, .name = "step", .plan = kOnCpu, .fuse = {}});
}

// Layers with dropout, gates and a mask that each of them reads; weights are leaves.
struct Net {
  Net(int layers, std::int64_t batch, std::int64_t width, std::uint64_t seed)
      : x(noise({batch, width}, seed)) {
    for (int i = 0; i < layers; ++i)
      weights.push_back(requires_grad_(noise({width, width}, seed + 1 + static_cast<unsigned>(i))));
  }
  Tensor operator()() const {
    const Tensor mask = x > 0;
    Tensor h = x;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      zero_grad(weights[i]);
      const Tensor y = matmul(h, weights[i]);
      h = where(mask, tanh(y) * sigmoid(y), 0.1 * y);
      if (i % 2) h = dropout(h, 0.2);
      if (i % 3 == 2) h = h + x;
    }
    const Tensor loss = sum(square(h));
    backward(loss);
    return detach(loss);
  }
  Tensors gradients() const {
    Tensors all;
    for (const Tensor& w : weights) all.push_back(grad(w));
    return all;
  }

  Tensor x;
  Tensors weights;
};

inline std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace brrr::test
