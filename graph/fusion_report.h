// The report of a fused step: its kernels, and the values between them.
#pragma once

#include <string>
#include <vector>

#include <brrr/graph/compile.h>
#include <brrr/graph/generated_kernel.h>
#include <brrr/graph/prediction.h>
#include <brrr/graph/program.h>

namespace brrr::graph {

// The plan, memory and prediction of a program.
CompiledEntry report_of(const Program& program);

// The edges of a fused graph, with names and source lines.
std::vector<UnfusedEdge> describe_unfused(const Graph& graph);
// By reason, with counts; below each reason its edges.
std::string unfused_text(const Graph& graph);

// The generated kernels among the launches, in order.
std::vector<GeneratedKernel> describe_kernels(const Graph& graph, std::span<const Launch> launches,
                                              const Prediction& prediction);
std::string kernels_text(std::span<const GeneratedKernel> kernels, bool fast);

// Throws unless each pair of require_fused is in one kernel. `before` is the graph that was fused;
// `name`: of the step.
void check_required(const Graph& before, const Graph& fused, const std::string& name);

// Says on stderr that kernels cannot be compiled on the CPU, once a process for each reason.
void report_uncompiled(const std::string& why);

}  // namespace brrr::graph
