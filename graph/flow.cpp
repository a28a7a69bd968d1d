#include "brrr/graph/flow.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "brrr/dispatch/op_info.h"

namespace brrr::graph {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

Flow::Lists Flow::lists_of(const Graph& graph, std::vector<Value> Node::*values) {
  Lists lists;
  std::vector<int> last(graph.buffers.size(), kNone);  // a call counts once
  const auto each = [&](auto visit) {
    std::ranges::fill(last, kNone);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const Value& value : graph.nodes[i].*values) {
        const int call = static_cast<int>(i);
        if (std::exchange(last[at(value.buffer)], call) != call) visit(at(value.buffer), call);
      }
    }
  };
  lists.start.resize(graph.buffers.size() + 1);
  each([&](std::size_t buffer, int) { ++lists.start[buffer + 1]; });
  std::partial_sum(lists.start.begin(), lists.start.end(), lists.start.begin());
  lists.calls.resize(at(lists.start.back()));
  std::vector<int> next(lists.start);
  each([&](std::size_t buffer, int call) { lists.calls[at(next[buffer]++)] = call; });
  return lists;
}

Flow::Flow(const Graph& graph)
    : graph_(&graph),
      writers_(lists_of(graph, &Node::outputs)),
      readers_(lists_of(graph, &Node::inputs)),
      escapes_(graph.buffers.size()) {
  const auto escape = [this](const Value& value) {
    if (value.buffer >= 0) escapes_[at(value.buffer)] = true;
  };
  for (const Output& output : graph.outputs) escape(output.value);
  for (const GradientSlot& slot : graph.gradients) {
    if (slot.after) escape(slot.after->value);
  }
}

int Flow::last_use(int buffer) const {
  int last = kNone;
  if (!writers(buffer).empty()) last = writers(buffer).back();
  if (!readers(buffer).empty()) last = std::max(last, readers(buffer).back());
  return last;
}

int Flow::version(int buffer, int call) const {
  const std::span<const int> calls = writers(buffer);
  return static_cast<int>(std::ranges::lower_bound(calls, call) - calls.begin());
}

bool Flow::conflict(int a, int b) const {
  const auto overlap = [](const std::vector<Value>& written, const std::vector<Value>& touched) {
    return std::ranges::any_of(written, [&](const Value& x) {
      return std::ranges::any_of(touched, [&](const Value& y) {
        return x.buffer == y.buffer && may_overlap(x.region(), y.region());
      });
    });
  };
  const Node &one = graph_->nodes[at(a)], &other = graph_->nodes[at(b)];
  return overlap(one.outputs, other.outputs) || overlap(one.outputs, other.inputs) ||
         overlap(other.outputs, one.inputs);
}

std::int64_t bytes_moved(std::span<const Value> inputs, std::span<const Value> outputs) {
  std::int64_t bytes = 0;
  const auto add = [&bytes](const Value& value) {
    auto distinct = static_cast<std::int64_t>(size_of(value.dtype));
    for (int d = 0; d < value.shape.size(); ++d) {
      if (value.strides[d] != 0 || value.shape[d] == 0) distinct *= value.shape[d];
    }
    bytes += distinct;
  };
  for (const Value& input : inputs) add(input);
  for (const Value& output : outputs) add(output);
  return bytes;
}

bool is_pure(const Node& node) {
  const Effect effect = op_info(node.call.op).effect;
  return !node.call.in_place && (effect == Effect::pure || effect == Effect::draws);
}

bool has_effect(const Node& node) {
  const Effect effect = op_info(node.call.op).effect;
  return effect == Effect::checks || effect == Effect::unknown;
}

bool is_whole(const Graph& graph, const Value& value) {
  return value.offset == 0 && value.is_contiguous() &&
         value.bytes() == graph.buffers[at(value.buffer)].bytes;
}

Substitution::Substitution(const Graph& graph) : by_(graph.buffers.size()) {
  std::iota(by_.begin(), by_.end(), 0);
}

void Substitution::apply(Node& node) const {
  for (Value& input : node.inputs) input.buffer = by_[at(input.buffer)];
}

void Substitution::apply_to_required(Graph& graph) const {
  for (RequiredFusion& pair : graph.required) {
    pair.a.buffer = by_[at(pair.a.buffer)];
    pair.b.buffer = by_[at(pair.b.buffer)];
  }
}

int replace_nodes(Graph& graph, std::vector<Node> nodes) {
  const int removed = static_cast<int>(graph.nodes.size()) - static_cast<int>(nodes.size());
  graph.nodes = std::move(nodes);
  return removed;
}

}  // namespace brrr::graph
