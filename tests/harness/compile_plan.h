// Checks a plan independently of the planner, and runs its calls in a random order that its
// dependences allow.
#pragma once

#include <string>
#include <vector>

#include "tests/harness/samples.h"
#include <brrr/graph/plan.h>

namespace brrr::test {

// "" if
// - buffers with overlapping lifetimes do not alias, every block is inside the arena, and the arena
//   is not smaller than peak live memory,
// - no call overwrites an operand other than element by element,
// - two calls that access the same bytes, at least one of them to write, keep their order in every
//   order that the plan allows.
std::string problem_of_plan(const graph::Graph& graph, const graph::PlanOptions& options,
                            const graph::Plan& plan);

// Runs the calls on the CPU in a random order that the plan allows, in new memory with the plan's
// layout, filled with garbage. Returns the outputs, then the gradients that are results. Writes to
// captured tensors.
std::vector<Tensor> run_planned(const graph::Graph& graph, const graph::PlanOptions& options,
                                const graph::Plan& plan, const std::vector<Tensor>& arguments,
                                Random& random);

}  // namespace brrr::test
