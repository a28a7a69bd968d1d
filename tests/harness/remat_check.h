// Graphs for tests of rematerialization.
#pragma once

#include <functional>

#include "brrr/graph/passes.h"
#include "brrr/graph/rematerialize.h"
#include "brrr/graph/trace.h"

namespace brrr::test {

constexpr graph::PlanOptions kOnCpu = {false, false, false};

// The graph of a step, as rematerialization gets it.
inline graph::Graph traced(const std::function<Tensor()>& step) {
  graph::Trace trace("traced", {});
  graph::Graph graph = trace.finish(Tensors{step()});
  remove_dead(graph);
  simplify(graph);
  merge_equal(graph);
  hoist_constants(graph);
  return graph;
}

// Rewrites the graph of a step of which each call is a kernel.
inline graph::RematReport applied(graph::Graph& graph, Remat policy) {
  return rematerialize(graph, {.policy = policy, .name = "step", .plan = kOnCpu, .fuse = {}});
}

}  // namespace brrr::test
