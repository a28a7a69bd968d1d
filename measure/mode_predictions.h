// A compiled step in the modes that its program did not use. What was traced is planned as
// compile() plans it, without memory, and the plan is priced as that of a compiled step: nothing
// runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <brrr/graph/compile.h>
#include <brrr/graph/ir.h>
#include <brrr/measure/eager_calls.h>
#include <brrr/measure/watch.h>
#include <brrr/ops/matmul.h>

namespace brrr::measure {

class TracedStep {
 public:
  // `calls`: before any pass. Keeps no reference to tensors of the program.
  TracedStep(const graph::Graph& calls, const CompileOptions& options);

  Device device() const { return graph_.device; }
  // What the host does when the calls are made one by one.
  EagerCalls eager_calls() const;
  // The modes other than that of the options. `slowdown`: of the host, for eager mode.
  std::vector<PredictedMode> other_modes(double slowdown) const;

 private:
  struct Priced;
  graph::Graph after_passes(Mode mode) const;
  Priced price(const graph::Graph& graph) const;
  core::StepTime predict(Mode mode, double slowdown) const;
  core::StepTime predict_fused() const;

  graph::Graph graph_;
  CompileOptions options_;
  Precision precision_;
};

// The modes other than the step's own, without a prediction.
std::vector<PredictedMode> unpredicted(Mode own, const std::string& why_not);
// The evidence has the modes that are predicted to take less time, and those that are not.
void weigh(const WatchedStep& step, Evidence& evidence);

// The modes other than eager of an eager step, whose calls were observed and not traced.
std::vector<PredictedMode> other_modes(std::span<const core::LaunchCost> calls, Device device);

}  // namespace brrr::measure
