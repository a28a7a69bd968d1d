#include "brrr/graph/flow_dependences.h"

#include <algorithm>
#include <utility>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"

namespace brrr::graph {

EffectOrder::EffectOrder(const Graph& graph)
    : graph_(graph), any_unknown_(std::ranges::any_of(graph.nodes, has_unknown_effect)) {}

void EffectOrder::add(int call, std::vector<int>& before) {
  const Node& node = graph_.nodes[call];
  const OpInfo& op = op_info(node.call.op);
  if (op.effect == Effect::ordered) {
    const auto [last, is_first] = channels_.try_emplace(op.channel, call);
    if (!is_first) before.push_back(std::exchange(last->second, call));
  }
  if (!any_unknown_) return;
  const auto is_from_outside = [this](const Value& v) { return is_outside(graph_, v.buffer); };
  const bool unknown = has_unknown_effect(node);
  if (!unknown && !has_effect(node) && std::ranges::none_of(node.inputs, is_from_outside) &&
      std::ranges::none_of(node.outputs, is_from_outside))
    return;
  if (unknown_ >= 0) before.push_back(unknown_);
  if (!unknown) return since_.push_back(call);
  before.insert(before.end(), since_.begin(), since_.end());
  since_.clear();
  unknown_ = call;
}

namespace {

bool overlap(const Value& a, const Value& b) {
  return a.buffer == b.buffer && may_overlap(a.region(), b.region());
}

// Finds the dependences of one call after another.
class Finder {
 public:
  Finder(const Graph& graph, CallDependences& found)
      : graph_(graph), found_(found), effects_(graph), touched_(graph.buffers.size()) {}

  void add(int call) {
    const Node& node = graph_.nodes[call];
    std::vector<int>& before = found_.predecessors[call];
    for (const Value& input : node.inputs) {
      Source source;
      look(input, has_unknown_effect(node), before, &source);
      found_.sources[call].push_back(source);
    }
    for (const Value& output : node.outputs) look(output, true, before, nullptr);
    effects_.add(call, before);
    std::ranges::sort(before);
    before.erase(std::ranges::unique(before).begin(), before.end());
    for (const int other : before) {
      found_.successors[other].push_back(call);
      const bool reads = std::ranges::any_of(node.inputs, [&](const Value& in) {
        return std::ranges::any_of(graph_.nodes[other].outputs,
                                   [&](const Value& out) { return overlap(in, out); });
      });
      if (reads) found_.readers[other].push_back(call);
    }
    for (const Value& input : node.inputs) touch(input, call);
    for (const Value& output : node.outputs) touch(output, call);
  }

 private:
  // Adds the earlier calls that conflict with an access. `source`: for reads, set to the result
  // read.
  void look(const Value& value, bool writes, std::vector<int>& before, Source* source) {
    const std::vector<int>& calls = touched_[value.buffer];
    for (std::size_t k = calls.size(); k-- > 0;) {
      const int other = calls[k];
      const Node& earlier = graph_.nodes[other];
      bool hits = false;
      for (std::size_t o = 0; o < earlier.outputs.size(); ++o) {
        if (!overlap(earlier.outputs[o], value)) continue;
        hits = true;
        if (source && source->node < 0) *source = {other, static_cast<int>(o)};
      }
      if (!hits && (writes || has_unknown_effect(earlier))) {
        hits = std::ranges::any_of(earlier.inputs,
                                   [&](const Value& input) { return overlap(input, value); });
      }
      if (hits) before.push_back(other);
      // Accesses before a write of the whole buffer are ordered by that write.
      const bool whole = std::ranges::any_of(earlier.outputs, [&](const Value& v) {
        return v.buffer == value.buffer && is_whole(graph_, v);
      });
      if (whole) break;
    }
  }

  void touch(const Value& value, int call) {
    std::vector<int>& calls = touched_[value.buffer];
    if (calls.empty() || calls.back() != call) calls.push_back(call);
  }

  const Graph& graph_;
  CallDependences& found_;
  EffectOrder effects_;
  std::vector<std::vector<int>> touched_;  // by buffer: calls, in order
};

}  // namespace

CallDependences::CallDependences(const Graph& graph)
    : sources(graph.nodes.size()),
      predecessors(graph.nodes.size()),
      successors(graph.nodes.size()),
      readers(graph.nodes.size()) {
  Finder finder(graph, *this);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) finder.add(static_cast<int>(i));
}

}  // namespace brrr::graph
