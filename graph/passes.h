// The passes: functions that rewrite a graph and preserve its results (remove_dead is in
// graph/flow.h, since other passes call it). Each returns the number of nodes that it removed from
// replays. A new pass is a file of its own, declared here and listed in kPasses.
#pragma once

#include <brrr/graph/flow.h>

namespace brrr::graph {

int simplify(Graph& graph);
int merge_equal(Graph& graph);
// On CUDA, replaces two products around a softmax by one call, and their gradients by another.
int fuse_attention(Graph& graph);
// Gradients of an attention that are summed as blocks of one tensor are stored in their places.
int place_attention_gradients(Graph& graph);
// Rewrites gather(cast(x)) as cast(gather(x)): the converted tensor is never stored, and a loss
// over 16-bit logits converts one logit of each row.
int gather_before_conversions(Graph& graph);
int hoist_constants(Graph& graph);

struct Pass {
  const char* name;
  int (*run)(Graph& graph);
  bool in_graph_mode = true;  // false: runs only in fused mode
};

// Run in this order on a trace from which dead calls were removed; `rematerialize` and `fuse`
// follow.
inline constexpr Pass kPasses[] = {
    {"simplify", simplify},
    {"merge_equal", merge_equal},
    {"fuse_attention", fuse_attention, false},
    {"place_attention_gradients", place_attention_gradients, false},
    {"merge_equal", merge_equal, false},
    {"gather_before_conversions", gather_before_conversions, false},
    {"hoist_constants", hoist_constants},
};

// On CUDA, copies factors of products to layouts that tensor cores read, where that pays. A second
// run finds nothing to copy.
int copy_factors(Graph& graph);
// Merges calls into generated kernels, after copy_factors() unless the graph forbids it.
// Rematerialization also fuses its candidates to price them.
int fuse(Graph& graph);

}  // namespace brrr::graph
