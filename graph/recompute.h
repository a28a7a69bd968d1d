// Values that are cheaper to compute again, where they are read, than to keep in memory.
#pragma once

#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// The groups that fusion chose for the calls of a graph.
struct GroupsOfCalls {
  std::vector<int> group;    // of each call
  std::vector<bool> opaque;  // by group: what it reads is in memory, whatever that costs
};

// Puts copies of calls in front of those that read their results from other groups, where that
// moves fewer bytes. Returns which calls of the changed graph are such copies; empty: nothing has
// changed.
std::vector<bool> recompute_for_readers(Graph& graph, const GroupsOfCalls& groups);

}  // namespace brrr::graph
