// What the fusion pass says of the edges that it left, and the edges that a step must not have.
#pragma once

#include <string>
#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// The edges of a fused graph, for a reader.
std::vector<UnfusedEdge> describe_unfused(const Graph& graph);
// By reason, with counts; below each reason its edges.
std::string unfused_text(const Graph& graph);

// Throws unless each pair of require_fused is in one kernel. `before` is the graph that was fused;
// `name`: of the step.
void check_required(const Graph& before, const Graph& fused, const std::string& name);

}  // namespace brrr::graph
