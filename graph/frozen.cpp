// The linter: numbers of the host that became part of a graph, and will be the same in every
// replay.
#include <fmt/format.h>

#include <string_view>

#include "autograd/autograd.h"
#include "dispatch/op_info.h"
#include "graph/ir.h"

namespace brrr::graph {
namespace {

// Whether a node writes to a leaf's memory: the leaf's gradient is one of those that the step
// computes.
bool writes_to_outside(const Graph& graph, const Node& node) {
  if (!node.call.in_place || node.role != Role::update) return false;
  for (const Value& output : node.outputs) {
    const Buffer& buffer = graph.buffers[static_cast<std::size_t>(output.buffer)];
    if (buffer.kind != Buffer::Kind::captured) continue;
    for (const LeafGradient& gradient : graph.gradients) {
      if (gradient.leaf.shares_storage_with(buffer.captured)) return true;
    }
  }
  return false;
}

double number_in(const Call& call, const Attr& attr) {
  return is_floating(call.dtype) ? attr.d() : static_cast<double>(attr.i());
}

}  // namespace

std::vector<Frozen> frozen_values(const Graph& graph) {
  std::vector<Frozen> found;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const Call& call = node.call;
    const OpInfo& info = op_info(call.op);
    const bool updates = writes_to_outside(graph, node);
    const auto add = [&](std::string what, double value, bool update) {
      found.push_back({static_cast<int>(i), std::move(what), value, update});
    };
    if (info.kind == OpKind::pointwise) {
      for (int k = 0; k < info.arity; ++k) {
        if ((call.scalars >> k) & 1)
          add(fmt::format("operand {}", k), number_in(call, call.attrs[k]), updates);
      }
      continue;
    }
    std::string_view names = info.attributes;
    const std::int64_t tensors = names.ends_with(" tensors") ? call.attrs[call.n_attrs - 1].i() : 0;
    for (int k = 0; k < call.n_attrs && !names.empty(); ++k) {
      const std::string_view name = names.substr(0, names.find(' '));
      if (name.ends_with("...")) break;
      const std::string_view bare = name.substr(0, name.find(':'));
      // Beside the rate such an op takes numbers that are meant to stay, such as Adam's betas.
      const bool rate = updates && bare == "rate";
      if (name.ends_with(":double") && !(tensors >> k & 1))
        add(std::string(bare), call.attrs[k].d(), rate);
      if (name.ends_with(":number")) add(std::string(bare), number_in(call, call.attrs[k]), rate);
      names.remove_prefix(std::min(name.size() + 1, names.size()));
    }
  }
  for (const auto& [what, site] : graph.host_values) found.push_back({-1, what, 0, false});
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
  std::string text;
  for (std::size_t i = 0; i < frozen.size(); ++i) {
    const Frozen& each = frozen[i];
    if (each.node < 0) {
      text += fmt::format("{}: its values are those of the trace (at {})\n", each.what, places[i]);
      continue;
    }
    const Node& node = graph.nodes[static_cast<std::size_t>(each.node)];
    text +=
        fmt::format("{} of {} is {}{} (at {})\n", each.what, op_info(node.call.op).name, each.value,
                    each.updates_parameter ? ", in an update of parameters" : "", places[i]);
  }
  return text;
}

}  // namespace brrr::graph
