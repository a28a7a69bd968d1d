// Checks a plan independently of the planner, and runs its calls in a random order that its
// dependences allow.
#pragma once

#include <string>
#include <vector>

#include "tests/harness/samples.h"
#include <brrr/graph/plan.h>

namespace brrr::test {

// "" when
// - memory that two live buffers share is never touched by both, the arena holds all that is put
//   into it and is not smaller than what lives at a time,
// - no call writes over an operand but element by element,
// - of two calls that touch the same bytes, one of them to write, the first is before the second in
//   every order that the plan allows.
std::string problem_of_plan(const graph::Graph& graph, const graph::PlanOptions& options,
                            const graph::Plan& plan);

// Runs the calls on the CPU in an order drawn among those that the plan allows, in memory of its
// own, filled with garbage, laid out as the plan says. Gives the outputs, then the gradients that
// are results. Writes to what was captured.
std::vector<Tensor> run_planned(const graph::Graph& graph, const graph::PlanOptions& options,
                                const graph::Plan& plan, const std::vector<Tensor>& arguments,
                                Random& random);

}  // namespace brrr::test
