#include "brrr/graph/flow_dependences.h"

#include <algorithm>

#include "brrr/graph/flow.h"

namespace brrr::graph {
namespace {

bool overlap(const Value& a, const Value& b) {
  return a.buffer == b.buffer && may_overlap(a.region(), b.region());
}

// Finds the dependences of one call after another.
class Finder {
 public:
  Finder(const Graph& graph, CallDependences& found)
      : graph_(graph), found_(found), touched_(graph.buffers.size()) {}

  void add(int call) {
    const Node& node = graph_.nodes[call];
    std::vector<int>& before = found_.predecessors[call];
    for (const Value& input : node.inputs) {
      Source source;
      look(input, false, before, &source);
      found_.sources[call].push_back(source);
    }
    for (const Value& output : node.outputs) look(output, true, before, nullptr);
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
      if (writes && !hits) {
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
