// The passes: functions from graph to graph that keep its results (remove_dead is in graph/flow.h,
// since other passes call it). Each returns how many nodes of a replay it removed. A new one is a
// file of its own, and here a declaration and its place in the order.
#pragma once

#include <brrr/graph/flow.h>

namespace brrr::graph {

int simplify(Graph& graph);
int merge_equal(Graph& graph);
// On CUDA, makes products with a softmax between them one call, and their gradients another.
int fuse_attention(Graph& graph);
// On CUDA, copies factors of TF32 products that the tensor cores read faster in another layout.
int copy_factors(Graph& graph);
int hoist_constants(Graph& graph);

struct Pass {
  const char* name;
  int (*run)(Graph& graph);
  bool in_graph_mode = true;  // else in fused steps alone
};

// Of a trace without dead calls, in this order. `rematerialize` and `fuse` follow.
inline constexpr Pass kPasses[] = {
    {"simplify", simplify},
    {"merge_equal", merge_equal},
    {"fuse_attention", fuse_attention, false},
    {"merge_equal", merge_equal, false},
    {"copy_factors", copy_factors, false},
    {"hoist_constants", hoist_constants},
};

// Makes groups of calls one kernel each. Rematerialization prices its candidates with it.
int fuse(Graph& graph);

}  // namespace brrr::graph
