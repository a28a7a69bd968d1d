#include "brrr/graph/flow.h"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

#include "brrr/dispatch/op_info.h"

namespace brrr::graph {

CallLists::CallLists(std::size_t buffers, std::span<const std::pair<int, int>> uses)
    : start_(buffers + 1), calls_(uses.size()) {
  for (const auto& [buffer, call] : uses) ++start_[buffer + 1];
  std::partial_sum(start_.begin(), start_.end(), start_.begin());
  std::vector<int> next(start_);
  for (const auto& [buffer, call] : uses) calls_[next[buffer]++] = call;
}

Flow::Flow(const Graph& graph) : graph_(&graph), escapes_(graph.buffers.size()) {
  struct Uses {
    explicit Uses(const Graph& of) : last(of.buffers.size(), kNone) {
      calls.reserve(2 * of.nodes.size());
    }
    void add(const Value& value, int call) {
      if (std::exchange(last[value.buffer], call) != call)  // a call counts once
        calls.emplace_back(value.buffer, call);
    }
    std::vector<std::pair<int, int>> calls;
    std::vector<int> last;
  } reads(graph), writes(graph);
  // One walk over the nodes, whose values are spread over the heap.
  for (int call = 0; call < static_cast<int>(graph.nodes.size()); ++call) {
    for (const Value& input : graph.nodes[call].inputs) reads.add(input, call);
    for (const Value& output : graph.nodes[call].outputs) writes.add(output, call);
    if (!has_unknown_effect(graph.nodes[call])) continue;
    for (const Value& input : graph.nodes[call].inputs) writes.add(input, call);
    unknown_.push_back(call);
  }
  readers_ = CallLists(graph.buffers.size(), reads.calls);
  writers_ = CallLists(graph.buffers.size(), writes.calls);
  const auto escape = [this](const Value& value) {
    if (value.buffer >= 0) escapes_[value.buffer] = true;
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

int Flow::writer(const Value& value, int time) const {
  const auto writes = [&](int call) {
    const Node& node = graph_->nodes[call];
    return node.number < time && std::ranges::any_of(node.outputs, [&](const Value& output) {
             return output.buffer == value.buffer && may_overlap(output.region(), value.region());
           });
  };
  const auto calls = writers(value.buffer) | std::views::reverse;
  const auto found = std::ranges::find_if(calls, writes);
  return found == calls.end() ? kNone : *found;
}

namespace {

int count_before(std::span<const int> calls, int call) {
  return static_cast<int>(std::ranges::lower_bound(calls, call) - calls.begin());
}

}  // namespace

int Flow::version(int buffer, int call) const {
  const int writes = count_before(writers(buffer), call);
  return is_outside(*graph_, buffer) ? writes + count_before(unknown_, call) : writes;
}

int Flow::writer_before(int buffer, int call) const {
  const int writes = count_before(writers(buffer), call);
  return writes == 0 ? kNone : writers(buffer)[writes - 1];
}

std::int64_t bytes_touched(const Graph& graph) {
  std::vector<bool> touched(graph.buffers.size());
  for (const Node& node : graph.nodes) {
    for (const Value& input : node.inputs) touched[input.buffer] = true;
    for (const Value& output : node.outputs) touched[output.buffer] = true;
  }
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < touched.size(); ++i)
    bytes += touched[i] ? static_cast<std::int64_t>(graph.buffers[i].bytes) : 0;
  return bytes;
}

std::int64_t bytes_moved(std::span<const Value> inputs, std::span<const Value> outputs) {
  std::int64_t bytes = 0;
  for (const std::span<const Value> values : {inputs, outputs}) {
    for (const Value& value : values)
      bytes += distinct_bytes(value.dtype, value.shape, value.strides);
  }
  return bytes;
}

std::int64_t bytes_moved(const Node& node) {
  const std::int64_t bytes = bytes_moved(node.inputs, node.outputs);
  if (node.body) return bytes - node.body->unread;
  if (op_info(node.call.op).algebra != Algebra::gathering) return bytes;
  const std::int64_t whole = bytes_moved(std::span(node.inputs).first(1), {});
  return bytes - std::max<std::int64_t>(0, whole - bytes_moved({}, node.outputs));
}

bool has_unknown_effect(const Node& node) {
  return op_info(node.call.op).effect == Effect::unknown;
}

bool is_pure(const Node& node) {
  const Effect effect = op_info(node.call.op).effect;
  return !node.call.in_place && (effect == Effect::pure || effect == Effect::draws);
}

bool has_effect(const Node& node) {
  const Effect effect = op_info(node.call.op).effect;
  return effect != Effect::pure && effect != Effect::draws;
}

std::optional<double> factor_of(const Node& node) {
  const Call& call = node.call;
  const OpInfo& op = op_info(call.op);
  if (op.kind != OpKind::pointwise || node.inputs.size() != 1 || !is_floating(call.dtype))
    return {};
  if (op.algebra == Algebra::product) return call.number(call.is_scalar(0) ? 0 : 1);
  if (op.algebra == Algebra::quotient && call.is_scalar(1)) return 1 / call.number(1);
  return {};
}

std::vector<int> marked_buffers(const Graph& graph) {
  std::vector<int> marked;
  for (const RematMark& mark : graph.marks) marked.push_back(mark.value.buffer);
  for (const RequiredFusion& each : graph.required) {
    marked.push_back(each.a.buffer);
    marked.push_back(each.b.buffer);
  }
  return marked;
}

bool is_whole(const Graph& graph, const Value& value) {
  return value.offset == 0 && value.is_contiguous() &&
         value.bytes() == graph.buffers[value.buffer].bytes;
}

Substitution::Substitution(const Graph& graph) : by_(graph.buffers.size()) {
  std::iota(by_.begin(), by_.end(), 0);
}

void Substitution::apply(Node& node) const {
  for (Value& input : node.inputs) input.buffer = by_[input.buffer];
}

void Substitution::apply_to_marks(Graph& graph) const {
  for (RequiredFusion& pair : graph.required) {
    pair.a.buffer = by_[pair.a.buffer];
    pair.b.buffer = by_[pair.b.buffer];
  }
  for (RematMark& mark : graph.marks) mark.value.buffer = by_[mark.value.buffer];
}

Value transposed(Value x) {
  const int last = x.shape.size() - 1;
  std::swap(x.shape[last], x.shape[last - 1]);
  std::swap(x.strides[last], x.strides[last - 1]);
  return x;
}

int replace_nodes(Graph& graph, std::vector<Node> nodes) {
  const int removed = static_cast<int>(graph.nodes.size()) - static_cast<int>(nodes.size());
  graph.nodes = std::move(nodes);
  return removed;
}

}  // namespace brrr::graph
