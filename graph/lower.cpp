#include "brrr/graph/lower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/observe.h"
#include "brrr/graph/executor.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_work.h"

namespace brrr::graph {
namespace {

// The op of fused nodes: observers and reports see its calls. Its attributes are the FLOPs, and the
// bytes of operands that are gathered from and not read.
Op fused_op() {
  static const Op op = [] {
    OpInfo info;
    info.kind = OpKind::structured;
    info.arity = -1;
    info.attributes = "flops unread";
    info.cost = [](const Call& call, std::span<const Tensor> outputs) {
      return Cost{call.attrs[0].i(), operand_bytes(call, outputs) - call.attrs[1].i()};
    };
    return add_op(std::move(info), "fused");
  }();
  return op;
}

// Whether two values that are live at the same time share bytes. Values of different blocks never
// do; temporaries that alias a gradient are in its block.
bool share_bytes(const Plan& plan, const Value& one, const Value& other) {
  const Placement &placement = plan.placement_of(one), &second = plan.placement_of(other);
  if (placement.block != second.block) return false;
  const auto from = [](const Placement& at, std::int64_t byte) {
    return static_cast<std::int64_t>(at.offset) + byte;
  };
  const Extent of = extent_of(one.region()), with = extent_of(other.region());
  return from(placement, of.low) < from(second, with.high) &&
         from(second, with.low) < from(placement, of.high);
}

// The inputs of a launch that neither launch of `ahead` writes: the previous one in program order
// (when launches are not captured) and the previous one of its lane (when they are). Both must be
// generated kernels, which trigger the next kernel only after all kernels before themselves have
// ended.
std::vector<bool> prefetchable_inputs(const Launch& launch, std::span<const Launch* const> ahead,
                                      const Plan& plan) {
  const std::vector<Value>& inputs = launch.node->inputs;
  const auto has_kernel = [](const Launch* other) {  // calls without elements launch no kernel
    return other && other->node->body &&
           std::ranges::any_of(other->node->outputs, [](const Value& v) { return v.numel() > 0; });
  };
  if (!std::ranges::all_of(ahead, has_kernel)) return {};
  std::vector<bool> prefetchable;
  for (const Value& input : inputs) {
    prefetchable.push_back(std::ranges::none_of(ahead, [&](const Launch* other) {
      return std::ranges::any_of(other->node->outputs, [&](const Value& output) {
        return share_bytes(plan, output, input);
      });
    }));
  }
  return prefetchable;
}

void make_bodies(Lowered& lowered, const Plan& plan, Device device) {
  std::vector<BodyOperands> bodies;
  std::vector<Launch*> launches;
  const Launch* previous = nullptr;
  std::vector<const Launch*> last(static_cast<std::size_t>(plan.lanes), nullptr);  // of each lane
  for (Launch& launch : lowered.launches) {
    const std::array ahead{std::exchange(previous, &launch),
                           std::exchange(last[plan.lane[launch.index]], &launch)};
    if (!launch.node->body) continue;
    BodyOperands of{launch.node->body, {}, {}};
    of.prefetchable = prefetchable_inputs(launch, ahead, plan);
    for (std::uint32_t i = 0; i < launch.call.n_inputs; ++i)
      of.inputs.push_back(launch.call.input(static_cast<int>(i)));
    for (const Tensor& output : launch.results()) of.outputs.push_back(output);
    bodies.push_back(std::move(of));
    launches.push_back(&launch);
  }
  lowered.bodies = make_body_kernels(device, bodies);
  for (std::size_t i = 0; i < launches.size(); ++i) launches[i]->body = lowered.bodies[i].get();
}

}  // namespace

Node fused_node(std::shared_ptr<const BodySpec> body, std::vector<Value> inputs,
                std::vector<Value> outputs, std::vector<std::string> names) {
  Call call(fused_op(), nullptr, static_cast<std::uint32_t>(inputs.size()));
  std::int64_t flops = 0, unread = 0;
  for (const BodySpec* part = body.get(); part; part = part->next.get()) {
    flops += part->flops;
    unread += part->unread;
  }
  call.add_attr(flops);
  call.add_attr(unread);
  Node node(call);
  node.body = std::move(body);
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.fused = std::move(names);
  return node;
}

Launch::Launch(const Node& of, Device device) : composite(of.composite), call(of.call), node(&of) {
  const OpInfo& info = op_info(call.op);
  name = info.name;
  if (of.body) return;
  kernel = device.is_cpu() ? info.cpu : info.cuda;
  if (!kernel) fail("[{}] has no kernel for {}", name, to_string(device));
}

Lowered lower(const Graph& graph, const Plan& plan, Memory& memory) {
  Lowered lowered;
  lowered.launches.reserve(graph.nodes.size());
  std::size_t inputs = 0, outputs = 0;
  for (const Node& node : graph.nodes) {
    inputs += node.inputs.size();
    outputs += node.outputs.size();
  }
  lowered.operands.reserve(inputs + outputs);  // launches point into these
  lowered.pointers.reserve(inputs);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (plan.elided[i]) continue;
    const Node& node = graph.nodes[i];
    Launch launch(node, graph.device);
    launch.index = static_cast<int>(i);
    launch.call.inputs = lowered.pointers.data() + lowered.pointers.size();
    for (const Value& input : node.inputs) {
      lowered.operands.push_back(memory.operand(input));
      lowered.pointers.push_back(&lowered.operands.back());
    }
    launch.outputs = lowered.operands.data() + lowered.operands.size();
    for (const Value& output : node.outputs) lowered.operands.push_back(memory.operand(output));
    lowered.launches.push_back(launch);
  }
  make_bodies(lowered, plan, graph.device);
  return lowered;
}

std::vector<std::pair<int, Tensor>> run_constants(const Graph& graph) {
  std::unordered_map<int, Tensor> made;
  const auto view_of = [&made](const Value& value) {
    return make_view(made.at(value.buffer), value.shape, value.strides, value.offset);
  };
  std::vector<std::pair<int, Tensor>> constants;
  for (const Node& node : graph.constants) {
    std::vector<Tensor> inputs, outputs;
    std::vector<const Tensor*> pointers;
    for (const Value& input : node.inputs) inputs.push_back(view_of(input));
    for (const Tensor& input : inputs) pointers.push_back(&input);
    for (const Value& output : node.outputs) {
      outputs.push_back(make_tensor(output.dtype, output.shape, graph.device));
      made[output.buffer] = outputs.back();
      if (graph.buffers[output.buffer].kind == Buffer::Kind::constant)
        constants.emplace_back(output.buffer, outputs.back());
    }
    Launch launch(node, graph.device);
    launch.call.inputs = pointers.data();
    launch.outputs = outputs.data();
    run_in_order({&launch, 1});
  }
  return constants;
}

std::string ops_of(const Launch& launch) {
  const std::vector<std::string>& fused = launch.node->fused;
  return fused.empty() ? launch.name : fmt::format("{}", fmt::join(fused, " + "));
}

RefusedKernel::RefusedKernel(const std::string& message, const Node& node)
    : Error(fmt::format("{} (at {})", message, describe(node.site))),
      kernel(fmt::format("{} (at {})", fmt::join(node.fused, " + "), describe(node.site))),
      calls(node.calls) {}

namespace {

void show(const Launch& launch) {
  HostListener* const listener = host_listener.load(std::memory_order_acquire);
  if (listener && launch.body) listener->next_op(ops_of(launch));
  observe_before(launch.call);
}

}  // namespace

void run_in_order(std::span<const Launch> launches) {
  const Launch* launch = launches.data();
  const Launch* const end = launch + launches.size();
  const bool shown = observed();
  try {
    for (; launch != end; ++launch) {
      if (shown) [[unlikely]]
        show(*launch);
      launch->run();
      if (shown) [[unlikely]]
        observe_after(launch->call, launch->results());
    }
  } catch (const Error&) {
    rethrow_with(launch->node->site);
  }
}

}  // namespace brrr::graph
