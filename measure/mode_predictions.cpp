#include "brrr/measure/mode_predictions.h"

#include <algorithm>

#include "brrr/graph/choose.h"
#include "brrr/graph/lower.h"
#include "brrr/graph/passes.h"
#include "brrr/graph/plan.h"
#include "brrr/graph/prediction.h"
#include "brrr/graph/program.h"
#include "brrr/measure/step.h"
#include "brrr/measure/step_cost.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::measure {
namespace {

// A tensor of this layout whose storage has an address and owns no memory.
Tensor tensor_at(void* address, std::size_t bytes, Device device, const graph::Value& layout) {
  return make_tensor_on(adopt_storage(device, address, bytes, nullptr, nullptr), layout.dtype,
                        layout.shape, layout.strides, layout.offset);
}

// Plans depend on the addresses of captured tensors, and on nothing else of their memory.
Tensor stand_in(const Tensor& x) {
  const Storage& storage = *TensorImpl::of(x)->storage;
  return tensor_at(storage.data, storage.bytes, x.device(),
                   {-1, x.dtype(), Dims(x.shape()), Dims(x.strides()), x.storage_offset()});
}

}  // namespace

TracedStep::TracedStep(const graph::Graph& calls, const CompileOptions& options)
    : graph_(calls), options_(options), precision_(matmul_precision()) {
  for (graph::Buffer& buffer : graph_.buffers) {
    if (buffer.captured.defined()) buffer.captured = stand_in(buffer.captured);
  }
  for (graph::GradientSlot& slot : graph_.gradients) {
    slot.leaf = slot.before = Tensor();
    if (slot.after) slot.after->outside = Tensor();
  }
  for (graph::Output& output : graph_.outputs) output.outside = Tensor();
  graph_.settings.clear();
}

EagerCalls TracedStep::eager_calls() const {
  EagerCalls calls{.views = graph_.calls.views, .recorded = graph_.calls.recorded};
  const auto made = static_cast<std::size_t>(graph_.calls.nodes);
  for (const graph::Node& node : std::span(graph_.nodes).first(made)) {
    if (!does_work(node.call)) {
      ++calls.views;
      continue;
    }
    ++calls.kernels;
    calls.products += op_info(node.call.op).algebra == Algebra::contraction;
  }
  return calls;
}

// The prediction of a plan, with its launches.
struct TracedStep::Priced {
  graph::Prediction prediction;
  std::vector<LaunchCost> launches;
};

TracedStep::Priced TracedStep::price(const graph::Graph& graph) const {
  const graph::Plan plan = graph::make_plan(
      graph, graph::Program::plan_options(graph.device, {.lanes = options_.lanes}));
  std::vector<std::vector<Tensor>> inputs, outputs;  // of each launch, whose layouts are its cost
  std::vector<std::vector<const Tensor*>> pointers;
  std::vector<graph::Launch> launches;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (plan.elided[i]) continue;
    const graph::Node& node = graph.nodes[i];
    const auto tensors_of = [&](std::span<const graph::Value> values) {
      std::vector<Tensor> tensors;
      for (const graph::Value& each : values)
        tensors.push_back(tensor_at(nullptr, each.bytes(), graph.device, each));
      return tensors;
    };
    inputs.push_back(tensors_of(node.inputs));
    outputs.push_back(tensors_of(node.outputs));
    std::vector<const Tensor*>& of_inputs = pointers.emplace_back();
    for (const Tensor& each : inputs.back()) of_inputs.push_back(&each);
    graph::Launch& launch = launches.emplace_back(node, graph.device);
    launch.index = static_cast<int>(i);
    launch.call.inputs = of_inputs.data();
    launch.outputs = outputs.back().data();
  }
  Priced priced;
  priced.prediction = graph::predict(launches, plan, graph.device, bytes_touched(graph, plan));
  priced.launches = describe_launches(graph, launches, priced.prediction);
  return priced;
}

graph::Graph TracedStep::after_passes(Mode mode) const {
  graph::Graph graph = graph_;
  graph::remove_dead(graph);
  for (const graph::Pass& pass : graph::kPasses) {
    if (pass.in_graph_mode || mode == Mode::fused) pass.run(graph);
  }
  return graph;
}

// By the choice that was timed for these calls before, else by the model: nothing is timed here.
StepTime TracedStep::predict_fused() const {
  graph::Graph graph = after_passes(Mode::fused);
  graph.fast = options_.rounding == Rounding::fast;
  if (options_.measure && graph::measures_choices()) {
    if (const std::optional<graph::FusionChoice> choice = graph::kept_choice(graph)) {
      if (choice->unfused && graph.required.empty())
        return price(after_passes(Mode::graph)).prediction.step;
      graph.apart.insert(choice->apart.begin(), choice->apart.end());
      graph.copies_factors &= choice->copies_factors;
    }
  }
  graph::fuse(graph);
  return price(graph).prediction.step;
}

StepTime TracedStep::predict(Mode mode, double slowdown) const {
  if (mode == Mode::fused) return predict_fused();
  const Priced replay = price(after_passes(Mode::graph));
  if (mode == Mode::graph) return replay.prediction.step;
  StepCost cost;
  cost.eager = eager_calls();
  predict_from(replay.launches, slowdown, device(), cost);
  return cost.predicted;
}

std::vector<PredictedMode> unpredicted(Mode own, const std::string& why_not) {
  std::vector<PredictedMode> modes;
  for (const Mode mode : {Mode::eager, Mode::graph, Mode::fused}) {
    if (mode != own) modes.push_back({.mode = mode, .why_not = why_not});
  }
  return modes;
}

void weigh(const WatchedStep& step, Evidence& evidence) {
  for (const PredictedMode& each : step.others) {
    if (!each.predicted) continue;
    if (each.predicted->ps() < step.predicted.ps()) {
      evidence.alternatives.push_back({name_of(each.mode), *each.predicted});
    } else {
      evidence.ruled_out.push_back(each.mode);
    }
  }
}

std::vector<PredictedMode> TracedStep::other_modes(double slowdown) const {
  const MatmulPrecisionGuard as_traced(precision_);
  std::vector<PredictedMode> modes;
  for (const Mode mode : {Mode::eager, Mode::graph, Mode::fused}) {
    if (mode == options_.mode) continue;
    PredictedMode& each = modes.emplace_back(PredictedMode{.mode = mode});
    if (mode != Mode::eager && options_.remat.kind() != Remat::Kind::none) {
      each.why_not = "what its policy recomputes is chosen when it is compiled";
      continue;
    }
    try {
      each.predicted = predict(mode, slowdown);
    } catch (const Error& error) {
      each.why_not = error.what();
    }
  }
  return modes;
}

std::vector<PredictedMode> other_modes(std::span<const LaunchCost> calls, Device device) {
  const auto ceilings = graph::ceilings_of(device);
  StepTime replay;
  for (const LaunchCost& call : calls) {
    KernelTime kernel = call.by_ceilings;
    kernel.overhead_ps = ceilings->node_ps;
    replay += kernel;
  }
  replay.overhead_ps += ceilings->replay_ps;
  return {{.mode = Mode::graph, .predicted = replay},
          {.mode = Mode::fused, .why_not = "which calls fuse is known once the step is compiled"}};
}

}  // namespace brrr::measure
