// The linter: lists the host numbers that a trace baked into the graph, and finds learning rates
// among them, which were probably meant to change from step to step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "brrr/autograd/autograd.h"
#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"

namespace brrr::graph {
namespace {

Algebra algebra_of(const Node& node) { return op_info(node.call.op).algebra; }

bool moves(Algebra algebra) {
  return algebra == Algebra::identity || algebra == Algebra::conversion;
}

// Finds the calls whose numbers are rates: they scale what is added to a leaf, or make a
// coefficient for calls with intended constants (an optimizer's rate that the step fills in). Calls
// with intended constants are none of them.
class Rates {
 public:
  explicit Rates(const Graph& graph) : graph_(graph), flow_(graph), is_rate_(graph.nodes.size()) {
    const auto is_backward = [](const Node& node) { return node.role == Role::backward; };
    if (std::ranges::any_of(graph.nodes, is_backward)) first_role_ = Role::update;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.intended_constants) {
        for (const Value& input : node.inputs) note_coefficient(input);
      } else if (writes_to_leaf(node)) {
        is_rate_[i] = algebra_of(node) != Algebra::selection;
        follow_update(node);
      }
    }
  }
  bool has(std::size_t node) const { return is_rate_[node]; }

 private:
  bool writes_to_leaf(const Node& node) const {
    if (!node.call.in_place || node.role == Role::backward) return false;
    return std::ranges::any_of(node.outputs, [&](const Value& output) {
      const Buffer& buffer = buffer_of(output);
      return buffer.kind == Buffer::Kind::captured &&
             (buffer.requires_grad ||
              std::ranges::any_of(graph_.gradients, [&](const GradientSlot& slot) {
                return slot.leaf.shares_storage_with(buffer.captured);
              }));
    });
  }

  // Follows the terms of a sum that is assigned to a leaf, or added to it in place.
  void follow_update(const Node& node) {
    const Node* sum = &node;
    if (moves(algebra_of(node))) sum = producer_of(node.inputs[0]);
    if (!sum) return;
    const Algebra algebra = algebra_of(*sum);
    if (algebra != Algebra::sum && algebra != Algebra::difference) return;
    for (const Value& term : sum->inputs) follow_term(term, node.outputs[0]);
  }

  void follow_term(const Value& term, const Value& leaf) {
    const Node* node = producer_of(term);
    if (!node || node->role < first_role_ || node->role == Role::backward) return;
    if (node->call.in_place || node->intended_constants || term.shape != leaf.shape) return;
    const auto index = static_cast<std::size_t>(node - graph_.nodes.data());
    const Algebra algebra = algebra_of(*node);
    const bool scales = algebra == Algebra::product || algebra == Algebra::quotient;
    if (is_rate_[index] || (!scales && algebra != Algebra::negation && !moves(algebra))) return;
    is_rate_[index] = scales;
    for (const Value& input : node->inputs) {
      follow_term(input, leaf);
      if (algebra == Algebra::quotient) break;  // a divisor is no rate
    }
  }

  // A 0-d operand of a call with intended constants: the step made it of numbers alone, or filled a
  // tensor from outside with such a value.
  void note_coefficient(const Value& value) {
    if (!value.shape.empty()) return;
    const Buffer& buffer = buffer_of(value);
    if (buffer.kind == Buffer::Kind::temporary) {
      note_numbers(producer_of(value));
    } else if (buffer.kind == Buffer::Kind::captured && !buffer.requires_grad &&
               !is_gradient(buffer)) {
      for (const int writer : flow_.writers(value.buffer)) {
        const Node& node = graph_.nodes[writer];
        if (moves(algebra_of(node))) note_numbers(producer_of(node.inputs[0]));
      }
    }
  }
  void note_numbers(const Node* node) {
    if (node && !node->intended_constants && node->role != Role::backward && node->inputs.empty())
      is_rate_[node - graph_.nodes.data()] = true;
  }
  bool is_gradient(const Buffer& buffer) const {
    return std::ranges::any_of(graph_.gradients, [&](const GradientSlot& slot) {
      return slot.before.defined() && slot.before.shares_storage_with(buffer.captured);
    });
  }

  const Buffer& buffer_of(const Value& value) const { return graph_.buffers[value.buffer]; }
  const Node* producer_of(const Value& value) const {
    const int producer = flow_.producer(value.buffer);
    return producer == Flow::kNone ? nullptr : &graph_.nodes[producer];
  }

  const Graph& graph_;
  Flow flow_;
  std::vector<bool> is_rate_;
  Role first_role_ = Role::forward;  // of the calls that make an update
};

}  // namespace

std::vector<HostConstant> host_constants(const Graph& graph) {
  std::vector<HostConstant> found;
  const Rates rates(graph);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const OpInfo& info = op_info(node.call.op);
    const auto add = [&](const std::string& name, double value, bool may_be_rate) {
      const bool updates = rates.has(i) && may_be_rate && std::abs(value) != 1;
      found.push_back({fmt::format("{} of {}", name, info.name), value, node.site, updates,
                       node.intended_constants});
    };
    for (int k = 0; info.kind == OpKind::pointwise && k < info.arity; ++k) {
      if (node.call.is_scalar(k)) add(fmt::format("operand {}", k), node.call.number(k), true);
    }
    for_each_attribute(node.call, [&](const CallAttribute& attribute) {
      if (attribute.is_number())
        add(attribute.row.name, attribute.number(), node.inputs.empty() || attribute.row.is_rate);
    });
  }
  for (const auto& [what, site] : graph.host_values) found.push_back({what, {}, site});
  return found;
}

std::string to_string(std::span<const HostConstant> constants, bool message) {
  std::vector<CallSite> sites;
  for (const HostConstant& each : constants) sites.push_back(each.site);
  std::vector<std::string> places = describe(sites);
  if (message && !sites.empty()) places[0] = describe(sites[0]);
  // A loop of the program has the same number at the same line many times.
  std::vector<std::pair<std::string, int>> lines;
  for (std::size_t i = 0; i < constants.size(); ++i) {
    const HostConstant& each = constants[i];
    const std::string line =
        each.value
            ? fmt::format("{} is {}{} (at {})", each.what, *each.value,
                          each.updates_parameter ? ", in an update of parameters"
                          : each.intended        ? ", an intended constant"
                                                 : "",
                          places[i])
            : fmt::format("{}: its values are those of the trace (at {})", each.what, places[i]);
    const auto known = std::ranges::find(lines, line, &std::pair<std::string, int>::first);
    if (known == lines.end()) {
      lines.emplace_back(line, 1);
    } else {
      ++known->second;
    }
  }
  std::string text;
  for (const auto& [line, times] : lines)
    text += line + (times > 1 ? fmt::format(", {} times\n", times) : "\n");
  return text;
}

std::vector<HostConstant> frozen_rates(std::vector<HostConstant> constants,
                                       std::span<const double> arguments) {
  std::erase_if(constants, [&](const HostConstant& each) {
    return !each.updates_parameter || std::ranges::any_of(arguments, [&](double number) {
      const double size = std::abs(number), used = std::abs(*each.value);
      return used == size || used == static_cast<float>(size);
    });
  });
  return constants;
}

}  // namespace brrr::graph
