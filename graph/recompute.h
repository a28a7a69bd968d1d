// Recomputes values in the kernels that read them, where that moves fewer bytes than storing them.
#pragma once

#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// The operations an element of calls that may be computed several times rather than stored.
constexpr int kMostRepeatedOperations = 8;

// The groups that fusion chose for the calls of a graph.
struct GroupsOfCalls {
  std::vector<int> group;              // of each call
  std::vector<bool> opaque;            // by group: its operands must be in memory (a product)
  std::vector<bool> computes_factors;  // by group: a small product, whose kernel can compute them
};

// Inserts copies of calls before readers of their results in other groups, where that moves fewer
// bytes. Returns which calls of the new graph are copies; empty: the graph is unchanged.
std::vector<bool> recompute_for_readers(Graph& graph, const GroupsOfCalls& groups);

}  // namespace brrr::graph
