// The linter: numbers of the host that became part of a graph, and will be the same in every
// replay.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "brrr/autograd/autograd.h"
#include "brrr/dispatch/op_info.h"
#include "brrr/graph/ir.h"

namespace brrr::graph {
namespace {

// Whether a node writes to a leaf's memory.
bool writes_to_leaf(const Graph& graph, const Node& node) {
  if (!node.call.in_place || node.role == Role::backward) return false;
  for (const Value& output : node.outputs) {
    const Buffer& buffer = graph.buffers[static_cast<std::size_t>(output.buffer)];
    if (buffer.kind != Buffer::Kind::captured) continue;
    if (buffer.trains) return true;
    for (const LeafGradient& gradient : graph.gradients) {
      if (gradient.leaf.shares_storage_with(buffer.captured)) return true;
    }
  }
  return false;
}

// The calls whose numbers are rates: those that make what is added to a leaf, or taken from it, by
// scaling, and those that make a coefficient for calls with intended constants (an optimizer's
// rate that the step fills in). Calls with intended constants are none of them.
class Rates {
 public:
  explicit Rates(const Graph& graph) : graph_(graph), makers_(graph.buffers.size(), kNobody) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const Value& output : graph.nodes[i].outputs) {
        int& maker = makers_[static_cast<std::size_t>(output.buffer)];
        maker = maker == kNobody ? static_cast<int>(i) : kSeveral;
      }
    }
    in_update_.resize(graph.nodes.size());
    const auto is_backward = [](const Node& node) { return node.role == Role::backward; };
    if (std::ranges::any_of(graph.nodes, is_backward)) first_role_ = Role::update;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.intended_constants) {
        for (const Value& input : node.inputs) note_coefficient(input);
        continue;
      }
      if (!writes_to_leaf(graph, node)) continue;
      const Op op = node.call.op;
      in_update_[i] = op != Op::clamp && op != Op::maximum && op != Op::minimum;
      const Node* sum = &node;
      if (node.call.op == Op::copy) sum = maker_of(node.inputs[0]);
      if (!sum || (sum->call.op != Op::add && sum->call.op != Op::sub)) continue;
      for (const Value& term : sum->inputs) follow(term, node.outputs[0]);
    }
  }
  bool has(std::size_t node) const { return in_update_[node]; }

 private:
  static constexpr int kNobody = -1, kSeveral = -2;

  const Node* maker_of(const Value& value) const {
    const int maker = makers_[static_cast<std::size_t>(value.buffer)];
    return maker < 0 ? nullptr : &graph_.nodes[static_cast<std::size_t>(maker)];
  }

  void follow(const Value& amount, const Value& leaf) {
    const Node* maker = maker_of(amount);
    if (!maker || maker->role < first_role_ || maker->role == Role::backward) return;
    if (maker->call.in_place || maker->intended_constants) return;
    const auto index = static_cast<std::size_t>(maker - graph_.nodes.data());
    if (in_update_[index] || amount.shape != leaf.shape) return;
    const Op op = maker->call.op;
    const bool scales = op == Op::mul || op == Op::div;
    if (!scales && op != Op::neg && op != Op::copy) return;
    in_update_[index] = scales;
    for (const Value& input : maker->inputs) {
      follow(input, leaf);
      if (op == Op::div) break;  // what it is divided by is no rate
    }
  }

  // A 0-d operand of a call with intended constants: what the step made of numbers alone, or wrote
  // so to a tensor from outside.
  void note_coefficient(const Value& value) {
    if (!value.shape.empty()) return;
    const Buffer& buffer = graph_.buffers[static_cast<std::size_t>(value.buffer)];
    if (buffer.kind == Buffer::Kind::temporary) {
      note_numbers(maker_of(value));
    } else if (buffer.kind == Buffer::Kind::captured && !buffer.trains && !is_gradient(buffer)) {
      for (const Node& node : graph_.nodes) {
        if (node.call.op == Op::copy && node.outputs[0].buffer == value.buffer) {
          note_numbers(maker_of(node.inputs[0]));
        }
      }
    }
  }
  void note_numbers(const Node* maker) {
    if (!maker || maker->intended_constants || maker->role == Role::backward) return;
    if (maker->inputs.empty())
      in_update_[static_cast<std::size_t>(maker - graph_.nodes.data())] = true;
  }
  bool is_gradient(const Buffer& buffer) const {
    return std::ranges::any_of(graph_.gradients, [&](const LeafGradient& gradient) {
      return gradient.before.defined() && gradient.before.shares_storage_with(buffer.captured);
    });
  }

  const Graph& graph_;
  std::vector<int> makers_;  // the one call that writes to a buffer
  std::vector<bool> in_update_;
  Role first_role_ = Role::forward;  // of what makes an update
};

double number_in(const Call& call, const Attr& attr) {
  return is_floating(call.dtype) ? attr.d() : static_cast<double>(attr.i());
}

// An attribute `tensors` has a bit for each attribute that is an input instead.
std::int64_t given_as_tensors(const Call& call) {
  std::string_view names = op_info(call.op).attributes;
  for (int k = 0; k < call.n_attrs && !names.empty(); ++k) {
    const std::string_view name = names.substr(0, names.find(' '));
    if (name == "tensors") return call.attrs[k].i();
    names.remove_prefix(std::min(name.size() + 1, names.size()));
  }
  return 0;
}

}  // namespace

std::vector<Frozen> frozen_values(const Graph& graph) {
  std::vector<Frozen> found;
  const Rates rates(graph);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const Call& call = node.call;
    const OpInfo& info = op_info(call.op);
    const std::int64_t tensors = given_as_tensors(call);
    const auto add = [&](std::string what, double value) {
      const bool is_rate = info.kind == OpKind::pointwise || node.inputs.empty() || what == "rate";
      found.push_back({static_cast<int>(i), std::move(what), value,
                       rates.has(i) && is_rate && std::abs(value) != 1, node.intended_constants});
    };
    if (info.kind == OpKind::pointwise) {
      for (int k = 0; k < info.arity; ++k) {
        if (call.is_scalar(k)) add(fmt::format("operand {}", k), number_in(call, call.attrs[k]));
      }
      continue;
    }
    std::string_view names = info.attributes;
    for (int k = 0; k < call.n_attrs && !names.empty(); ++k) {
      const std::string_view name = names.substr(0, names.find(' '));
      if (name.ends_with("...")) break;
      const bool is_input = (tensors >> k) & 1;
      const std::string_view bare = name.substr(0, name.find(':'));
      if (name.ends_with(":double") && !is_input) add(std::string(bare), call.attrs[k].d());
      if (name.ends_with(":number")) add(std::string(bare), number_in(call, call.attrs[k]));
      names.remove_prefix(std::min(name.size() + 1, names.size()));
    }
  }
  for (const auto& [what, site] : graph.host_values) found.push_back({-1, what, 0, false, false});
  return found;
}

std::string to_string(const Graph& graph, std::span<const Frozen> frozen) {
  std::vector<CallSite> sites;
  std::size_t of_host = 0;
  for (const Frozen& each : frozen) {
    sites.push_back(each.node >= 0 ? graph.nodes[static_cast<std::size_t>(each.node)].site
                                   : graph.host_values[of_host++].second);
  }
  const std::vector<std::string> places = describe(sites);
  // A loop of the program has the same number at the same line many times.
  std::vector<std::pair<std::string, int>> lines;
  for (std::size_t i = 0; i < frozen.size(); ++i) {
    const Frozen& each = frozen[i];
    const std::string line =
        each.node < 0
            ? fmt::format("{}: its values are those of the trace (at {})", each.what, places[i])
            : fmt::format("{} of {} is {}{} (at {})", each.what,
                          op_info(graph.nodes[static_cast<std::size_t>(each.node)].call.op).name,
                          each.value,
                          each.updates_parameter ? ", in an update of parameters"
                          : each.intended        ? ", an intended constant"
                                                 : "",
                          places[i]);
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

}  // namespace brrr::graph
