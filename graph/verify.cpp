// The executable specification of the graph.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "brrr/dispatch/dispatch.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/flow_dependences.h"
#include "brrr/graph/ir.h"
#include "brrr/ops/attention.h"
#include "brrr/tensor/fail.h"

namespace brrr::graph {
namespace {

// Whether two values are the same elements: strides of dimensions of size 1 are ignored.
bool same_elements(const Value& a, const Value& b) {
  if (a.buffer != b.buffer || a.dtype != b.dtype || a.shape != b.shape || a.offset != b.offset)
    return false;
  for (int d = 0; d < a.shape.size(); ++d) {
    if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

class Verifier {
 public:
  Verifier(const Graph& graph, const char* after)
      : graph_(graph), after_(after), written_(graph.buffers.size(), false) {}

  void run() {
    for (std::size_t i = 0; i < graph_.buffers.size(); ++i) check_buffer(i);
    for (const Node& node : graph_.constants) {
      node_ = &node;
      check(node);
      for (const Value& input : node.inputs)
        require(!is_outside(graph_, input.buffer), "a constant to depend on constants");
    }
    for (const Node& node : graph_.nodes) {
      node_ = &node;
      check(node);
    }
    check_order_of_effects();
    node_ = nullptr;
    for (const Output& output : graph_.outputs) {
      if (output.is_value()) check_read(output.value);
    }
    for (const GradientSlot& slot : graph_.gradients) {
      if (slot.after && slot.after->is_value()) check_read(slot.after->value);
    }
  }

 private:
  void require(bool holds, const std::string& rule) const {
    if (holds) return;
    const auto number_in = [this](const std::vector<Node>& nodes) { return node_ - nodes.data(); };
    const bool constant = node_ && node_ >= graph_.constants.data() &&
                          number_in(graph_.constants) < std::ssize(graph_.constants);
    const std::string where =
        !node_ ? std::string("the graph")
               : fmt::format("{} {}, {},", constant ? "constant" : "call",
                             number_in(constant ? graph_.constants : graph_.nodes),
                             op_info(node_->call.op).name);
    fail("[verify] after {}: in {} expected {}", after_, where, rule);
  }

  void check_buffer(std::size_t i) {
    const Buffer& buffer = graph_.buffers[i];
    const bool captured = buffer.kind == Buffer::Kind::captured;
    require(captured == buffer.captured.defined(),
            "a captured buffer, and no other, to be a tensor's");
    require(buffer.misalignment == 0 ||
                (buffer.misalignment < 16 && buffer.kind == Buffer::Kind::input),
            "an argument, and no other buffer, to start up to 15 bytes past a multiple of 16");
    written_[i] = buffer.kind == Buffer::Kind::captured || buffer.kind == Buffer::Kind::input;
  }

  void check_value(const Value& value) const {
    require(value.buffer >= 0 && value.buffer < static_cast<int>(graph_.buffers.size()),
            "a buffer that is there");
    const Buffer& buffer = graph_.buffers[value.buffer];
    require(value.shape.size() == value.strides.size(), "a stride for each dimension");
    const Extent extent = extent_of(value.region());
    require(extent.low >= 0 && extent.high <= static_cast<std::int64_t>(buffer.bytes),
            fmt::format("{} within {} bytes", describe(graph_, value), buffer.bytes));
    require(buffer.device == graph_.device || !node_, "one device");
  }

  void check_read(const Value& value) const {
    check_value(value);
    require(written_[value.buffer] || value.numel() == 0,
            fmt::format("{} to be written before it is read", describe(graph_, value)));
  }

  // Whether the results of the gradient of an attention are blocks of one tensor.
  static bool are_blocks(const Node& node) {
    return is_attention_gradient(node.call.op) &&
           node.outputs[0].buffer == node.outputs[1].buffer &&
           node.outputs[1].buffer == node.outputs[2].buffer;
  }

  // A tensor of a value's shape, to call the op's shape rule with.
  static Tensor shaped(const Value& value, Device device) {
    return make_view(make_meta_tensor(value.dtype, value.shape, device), value.shape,
                     value.strides);
  }

  void check(const Node& node) {
    const OpInfo& info = op_info(node.call.op);
    require(info.kind != OpKind::view, "no view among the calls");
    require(node.inputs.size() == node.call.n_inputs, "the inputs that the call counts");
    require(node.body || node.outputs.size() == info.n_outputs, "the outputs that the op has");
    for (const Value& input : node.inputs) check_read(input);
    for (const Value& output : node.outputs) {
      check_value(output);
      require(!may_overlap_itself(output.region()), "outputs of distinct elements");
      if (!node.call.in_place && !node.body && !are_blocks(node)) {
        require(!written_[output.buffer], "a result to be the first that is written to its buffer");
        require(output.is_contiguous(), "a result without gaps");
      }
      for (const Value& input : node.inputs) {
        require(input.buffer != output.buffer || same_elements(input, output) ||
                    !may_overlap(input.region(), output.region()),
                "inputs that do not overlap an output");
      }
      written_[output.buffer] = true;
    }
    if (!node.body) check_shapes(node, info);
  }

  // Nodes keep the order of the trace where effects demand one. A body violates it only if none of
  // its calls is on the right side.
  void check_order_of_effects() {
    EffectOrder order(graph_);
    std::vector<int> before;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      node_ = &graph_.nodes[i];
      before.clear();
      order.add(static_cast<int>(i), before);
      for (const int other : before) {
        const int first = numbers_of(graph_.nodes[other]).first, last = numbers_of(*node_).second;
        require(first < 0 || last < 0 || first <= last,
                fmt::format("call {} of the trace, {}, not to come before it", first,
                            op_info(graph_.nodes[other].call.op).name));
      }
    }
  }

  static std::pair<int, int> numbers_of(const Node& node) {
    if (node.calls.empty()) return {node.number, node.number};
    const auto [first, last] = std::ranges::minmax(node.calls);
    return {first, last};
  }

  void check_shapes(const Node& node, const OpInfo& info) const {
    std::vector<Tensor> inputs;
    std::vector<const Tensor*> pointers;
    for (const Value& input : node.inputs) inputs.push_back(shaped(input, graph_.device));
    for (const Tensor& input : inputs) pointers.push_back(&input);
    Call call = node.call;
    call.inputs = pointers.data();
    OutputSpec specs[kMaxOutputs];
    info.infer(call, specs);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const Value& output = node.outputs[i];
      require(output.dtype == specs[i].dtype && (assigns(call) || output.shape == specs[i].shape),
              fmt::format("{}{} by the op's rule, got {}", name_of(specs[i].dtype),
                          to_string(specs[i].shape), describe(graph_, output)));
    }
  }

  const Graph& graph_;
  const char* after_;
  const Node* node_ = nullptr;  // the node being checked
  std::vector<bool> written_;   // by buffer
};

}  // namespace

void verify(const Graph& graph, const char* after) { Verifier(graph, after).run(); }

}  // namespace brrr::graph
